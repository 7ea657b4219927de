import type { Cluster, Redis } from "ioredis";

const channel = "petstore:keys";

/**
 * Tells all replicas at once that something about a key or an account has changed. A notice that is lost costs time
 * only: every replica looks its keys up again every few seconds.
 */
export class KeyNotices {
  readonly #redis: Redis | Cluster;
  #subscriber: Redis | Cluster | undefined;

  constructor(redis: Redis | Cluster) {
    this.#redis = redis;
  }

  /** @param id of a key or an account */
  async publish(id: string): Promise<void> {
    await this.#redis.publish(channel, id);
  }

  /** @param onNotice gets the id of a key or an account */
  subscribe(onNotice: (id: string) => void): void {
    const subscriber = this.#redis.isCluster
      ? (this.#redis as Cluster).duplicate()
      : (this.#redis as Redis).duplicate();
    this.#subscriber = subscriber;
    subscriber.on("error", () => {}); // the breaker tells of the same fault
    subscriber.on("message", (_channel: string, id: string) => onNotice(id));
    subscriber.on("ready", () => subscriber.subscribe(channel).catch(() => {}));
  }

  close(): void {
    this.#subscriber?.disconnect();
  }
}
