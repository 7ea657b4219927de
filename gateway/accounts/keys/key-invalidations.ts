/** Tells all gateways which keys and accounts have changed, so that they forget what they remember of them. */
import type { Cluster, Redis } from "ioredis";

const channel = "petstore:keys";
const retryAfterMs = 1_000;

/** Time between pings: without them a connection that only listens does not notice that its other end is gone. */
const heartbeatMs = 2_000;

/**
 * Sends and receives the ids of changed keys and accounts over Redis. A lost invalidation costs time only: every
 * gateway looks its keys up again every few seconds.
 */
export class KeyInvalidations {
  readonly #redis: Redis | Cluster;
  #subscriber: Redis | Cluster | undefined;
  #retry: NodeJS.Timeout | undefined;
  #heartbeat: NodeJS.Timeout | undefined;

  constructor(redis: Redis | Cluster) {
    this.#redis = redis;
  }

  /** @param id of a key or an account */
  async send(id: string): Promise<void> {
    await this.#redis.publish(channel, id);
  }

  /** @param receive gets the id of a key or an account, from any gateway and from this one */
  onInvalidation(receive: (id: string) => void): void {
    // Not `autoResubscribe`: if Redis refuses it or does not answer in time, nothing catches the error and the process
    // ends.
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
    subscriber.on("error", () => {}); // the breaker reports the same fault
    subscriber.on("message", (_channel: string, id: string) => receive(id));
    subscriber.on("ready", subscribe);
    if (isCluster) return; // the cluster client moves its own subscriber to another node when one leaves
    this.#heartbeat = setInterval(() => void subscriber.ping().catch(() => {}), heartbeatMs).unref();
  }

  close(): void {
    clearTimeout(this.#retry);
    clearInterval(this.#heartbeat);
    this.#subscriber?.disconnect();
  }
}
