import type { Cluster, Redis } from "ioredis";

const channel = "petstore:keys";
const retryAfterMs = 1_000;

/** A connection that only listens does not find out that nobody is there any more. */
const heartbeatMs = 2_000;

/**
 * Tells all replicas at once that something about a key or an account has changed. A notice that is lost costs time
 * only: every replica looks its keys up again every few seconds.
 */
export class KeyNotices {
  readonly #redis: Redis | Cluster;
  #subscriber: Redis | Cluster | undefined;
  #retry: NodeJS.Timeout | undefined;
  #heartbeat: NodeJS.Timeout | undefined;

  constructor(redis: Redis | Cluster) {
    this.#redis = redis;
  }

  /** @param id of a key or an account */
  async publish(id: string): Promise<void> {
    await this.#redis.publish(channel, id);
  }

  /** @param onNotice gets the id of a key or an account */
  subscribe(onNotice: (id: string) => void): void {
    // Not `autoResubscribe`: when that is refused, or not answered in time, nothing catches it and the process ends.
    const { isCluster } = this.#redis;
    const subscriber = isCluster
      ? (this.#redis as Cluster).duplicate()
      : (this.#redis as Redis).duplicate({ autoResubscribe: false });
    this.#subscriber = subscriber;
    const subscribe = () => {
      clearTimeout(this.#retry);
      subscriber.subscribe(channel).catch(() => {
        this.#retry = setTimeout(subscribe, retryAfterMs).unref();
      });
    };
    subscriber.on("error", () => {}); // the breaker tells of the same fault
    subscriber.on("message", (_channel: string, id: string) => onNotice(id));
    subscriber.on("ready", subscribe);
    if (isCluster) return; // its subscriber is inside it, and goes to another node when its own has left
    this.#heartbeat = setInterval(() => void subscriber.ping().catch(() => {}), heartbeatMs).unref();
  }

  close(): void {
    clearTimeout(this.#retry);
    clearInterval(this.#heartbeat);
    this.#subscriber?.disconnect();
  }
}
