import type { Registry } from "prom-client";
import type { RateLimiterAbstract } from "rate-limiter-flexible";
import type { Logger } from "../../runtime/log.ts";
import { counter, gauge } from "../../runtime/metrics.ts";
import type { MemoryWindows } from "../limits/memory-windows.ts";
import { type RefusalCounterOptions, shareRefusals } from "../limits/refusals.ts";
import { Breaker } from "./breaker.ts";
import { connectRedis, probe } from "./connection.ts";
import { KeyNotices } from "./key-changes.ts";
import { RedisWindows } from "./windows.ts";

const probeIntervalMs = 250;

/** What the replicas of the gateway have in common. */
export interface Replicas {
  /** Counts the requests of accounts. */
  readonly limiter: RateLimiterAbstract;
  readonly shareRefusals: RefusalCounterOptions["share"];
  /** Tells the other replicas that a key or an account has changed. */
  tell(id: string): void;
  /** @param onNotice gets the id of a key or an account that has changed */
  listen(onNotice: (id: string) => void): void;
  close(): void;
}

export interface ReplicasOptions {
  readonly redisUrl: string;
  /** Decides while Redis is away. */
  readonly memory: MemoryWindows;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** One gateway without others, or several that share nothing: each goes by its own memory. */
export function aloneWith(memory: MemoryWindows): Replicas {
  return { limiter: memory, shareRefusals: undefined, tell: () => {}, listen: () => {}, close: () => {} };
}

/** Gateways that act as one over Redis, and each by its share while Redis is away. */
export function overRedis({ redisUrl, memory, log, metrics }: ReplicasOptions): Replicas {
  const redis = connectRedis(redisUrl);
  const help = "Requests whose limits this replica decided on its own, by its share, while Redis was away";
  counter({ name: "gateway_limiter_alone_total", help, registry: metrics }, () => memory.decided);
  const breaker = new Breaker({
    probe: (key) => probe(redis, key),
    probeIntervalMs,
    onChange: (isOpen, err) => {
      if (isOpen) log.error({ err }, "Redis is away: this replica admits its share of the limits");
      else log.info("Redis is back: the limits are exact again");
    },
  });
  gauge({ name: "gateway_redis_up", help: "1 while the limits are counted on Redis", registry: metrics }, () =>
    breaker.isOpen ? 0 : 1,
  );
  redis.on("error", () => {}); // each failed command tells of it to the breaker
  const notices = new KeyNotices(redis);
  return {
    limiter: new RedisWindows({ redis, memory, breaker }),
    shareRefusals: shareRefusals(redis),
    tell: (id) => void notices.publish(id).catch(() => {}),
    listen: (onNotice) => notices.subscribe(onNotice),
    close: () => {
      breaker.close();
      notices.close();
      redis.disconnect();
    },
  };
}
