/** Connects the replicas of the gateway with each other. */
import type { Registry } from "prom-client";
import { RateLimiterMemory, RateLimiterRedis } from "rate-limiter-flexible";
import type { Logger } from "../../runtime/log.ts";
import { counter, gauge } from "../../runtime/metrics.ts";
import { reasonFields } from "../../runtime/operator-error.ts";
import { AccountGuard, accountGuardOptions, rotationGuardOptions } from "../limits/account-guard.ts";
import type { MemoryWindows } from "../limits/memory-windows.ts";
import type { ShareRefusals } from "../limits/refusals.ts";
import type { Limiter } from "../limits/windows.ts";
import { Breaker } from "./breaker.ts";
import { connectRedis, firstAnswer, probe } from "./connection.ts";
import { KeyChanges } from "./key-changes.ts";
import { RedisWindows } from "./redis-windows.ts";
import { shareRefusals } from "./shared-refusals.ts";

const probeIntervalMs = 250;

type GuardOptions = typeof accountGuardOptions | typeof rotationGuardOptions;

/** What the replicas of the gateway have in common. */
export interface Replicas {
  /** Counts the requests of accounts. */
  readonly limiter: Limiter;
  /** Limits what accounts ask about themselves. */
  readonly accountGuard: AccountGuard;
  /** Limits how often the keys of a line are rotated. */
  readonly rotationGuard: AccountGuard;
  /** Undefined where no counts are shared. */
  readonly shareRefusals: ShareRefusals | undefined;
  /** Notifies the other replicas that a key or an account has changed. */
  notify(id: string): void;
  /** @param receive gets the id of a key or an account that has changed */
  onNotice(receive: (id: string) => void): void;
  close(): void;
}

export interface RedisReplicasOptions {
  /** A URL as `connectRedis` takes it. */
  readonly redisUrl: string;
  /** How many gateways there are. */
  readonly count: number;
  /** Decides while Redis is away. */
  readonly memory: MemoryWindows;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** Connects gateways over Redis, so that they limit as one. While Redis is away, each admits its share. */
export function redisReplicas({ redisUrl, count, memory, log, metrics }: RedisReplicasOptions): Replicas {
  const redis = connectRedis(redisUrl);
  /** Why there is no connection. A command only knows that there is none. */
  let connectionFault: unknown;
  const help = "Requests whose limits this replica decided on its own, by its share, while Redis was away";
  counter({ name: "gateway_limiter_alone_total", help, registry: metrics }, () => memory.decided);
  const breaker = new Breaker({
    probe: (key) => probe(redis, key),
    probeIntervalMs,
    onChange: (isOpen, cause) => {
      if (isOpen) {
        const fields = { setting: "REDIS_URL", ...reasonFields(connectionFault ?? cause, log) };
        log.error(fields, "Redis is away: this replica admits its share of the limits");
      } else {
        log.info("Redis is back: the limits are exact again");
        void limiter.report();
      }
    },
  });
  const limiter = new RedisWindows({ redis, memory, breaker });
  gauge({ name: "gateway_redis_up", help: "1 while the limits are counted on Redis", registry: metrics }, () =>
    breaker.isOpen ? 0 : 1,
  );
  redis.on("error", (error) => {
    connectionFault = error;
  });
  redis.on("ready", () => {
    connectionFault = undefined;
    void limiter.report(); // when no request has met the outage, the breaker knows of none
  });
  // A wrong URL is told at the start, not to the first caller.
  breaker.run("start", () => firstAnswer(redis)).catch(() => {});
  const changes = new KeyChanges(redis);
  const guard = (of: GuardOptions) => {
    const insuranceLimiter = new RateLimiterMemory({ ...of, points: Math.ceil(of.points / count) });
    return new AccountGuard(new RateLimiterRedis({ ...of, storeClient: redis, insuranceLimiter }));
  };
  return {
    limiter,
    accountGuard: guard(accountGuardOptions),
    rotationGuard: guard(rotationGuardOptions),
    shareRefusals: shareRefusals(redis),
    notify: (id) => void changes.notify(id).catch(() => {}),
    onNotice: (receive) => changes.onNotice(receive),
    close: () => {
      breaker.close();
      changes.close();
      redis.disconnect();
    },
  };
}

/** One gateway without others, or one of several that share nothing: each counts in its own memory. */
export function standaloneReplica(memory: MemoryWindows): Replicas {
  return {
    limiter: memory,
    accountGuard: new AccountGuard(new RateLimiterMemory(accountGuardOptions)),
    rotationGuard: new AccountGuard(new RateLimiterMemory(rotationGuardOptions)),
    shareRefusals: undefined,
    notify: () => {},
    onNotice: () => {},
    close: () => {},
  };
}
