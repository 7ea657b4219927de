/** What the gateways of a deployment share: counts of requests and strikes, guards, invalidations of keys. */
import type { Cluster, Redis } from "ioredis";
import type { Registry } from "prom-client";
import { RateLimiterRedis } from "rate-limiter-flexible";
import type { Logger } from "../../runtime/log.ts";
import { counter, gauge } from "../../runtime/metrics.ts";
import { reasonFields } from "../../runtime/operator-error.ts";
import { KeyInvalidations } from "../accounts/keys/key-invalidations.ts";
import type { PlanName } from "../accounts/keys/plans.ts";
import type { MemoryWindows } from "../limits/memory-windows.ts";
import { Breaker } from "../limits/redis-breaker.ts";
import { connectRedis, firstAnswer, probe } from "../limits/redis-connection.ts";
import { RedisWindows } from "../limits/redis-windows.ts";
import type { Limiter } from "../limits/windows.ts";
import {
  AccountGuard,
  type GuardLimit,
  guardScript,
  keyedUpdateLimit,
  MemoryGuardPoints,
  ownAccountLimit,
  rotationLimit,
} from "./account-guard.ts";
import { strikeSharing } from "./shared-strikes.ts";
import type { ShareStrikes } from "./strikes.ts";

const probeIntervalMs = 250;

export interface SharedState {
  /**
   * Resolves when the state is shared, or cannot be for now. A gateway is ready only then, so that limits are exact
   * from its first request. Never rejects.
   */
  readonly connectionTried: Promise<void>;
  /** Counts the requests of accounts. */
  readonly limiter: Limiter;
  readonly guards: {
    /** Limits what accounts ask about themselves. */
    readonly ownAccount: AccountGuard;
    /** Limits how often the keys of a family are rotated. */
    readonly rotations: AccountGuard;
    /** Limits the entries that an account updates with an Idempotency-Key. */
    readonly keyedUpdates: AccountGuard;
  };
  /** Undefined where no counts are shared. */
  readonly shareStrikes: ShareStrikes | undefined;
  /** Notifies the other gateways that a key or an account has changed. */
  invalidate(id: string): void;
  /** @param receive gets the id of a key or an account that has changed */
  onInvalidation(receive: (id: string) => void): void;
  close(): void;
}

export interface SharedStateOptions {
  /** Keeps what this gateway knows of the windows, and decides where Redis does not. */
  readonly memory: MemoryWindows;
  /** How many gateways there are. */
  readonly gatewayCount: number;
  /** Entries that an account may update with an Idempotency-Key in a day. */
  readonly keyedUpdatesPerDay: number;
  /** Gets the plan of every caller that a guard refuses. */
  readonly onThrottled: (plan: PlanName) => void;
}

export interface RedisStateOptions extends SharedStateOptions {
  /** A URL as `connectRedis` takes it. */
  readonly redisUrl: string;
  readonly log: Logger;
  readonly metrics: Registry;
}

/**
 * Connects gateways over Redis, so that they limit as one. Everything but the receipt of invalidations goes through one
 * breaker: when Redis does not answer, only the requests that wait at that moment are delayed. While it is away, each
 * gateway admits its share.
 */
export function redisState(options: RedisStateOptions): SharedState {
  const { redisUrl, memory, log, metrics } = options;
  const redis = connectRedis(redisUrl);
  /** Why there is no connection. A command only knows that there is none. */
  let connectionFault: unknown;
  const help = "Requests whose limits this replica decided on its own, by its share, while Redis was away";
  counter({ name: "gateway_limiter_alone_total", help, registry: metrics }, () => memory.decidedAlone);
  const breaker = new Breaker({
    probe: (key) => probe(redis, key),
    probeIntervalMs,
    onChange: (isOpen, cause) => {
      if (isOpen) {
        const fields = { setting: "REDIS_URL", ...reasonFields(connectionFault ?? cause, log) };
        log.error(fields, "Redis is away: this replica admits its share of the limits");
      } else {
        log.info("Redis is back: the limits are exact again");
        void limiter.reportCounts();
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
    void limiter.reportCounts(); // an outage that no request has met opens no breaker, so `onChange` says nothing
  });
  // A wrong URL is told at the start, not to the first caller.
  const connectionTried = firstAnswer(redis).catch((cause) => breaker.open("start", cause));
  const invalidations = new KeyInvalidations(redis);
  const storeClient = throughBreaker(redis, breaker);
  return {
    connectionTried,
    limiter,
    guards: guardsOf(options, (limit, insuranceLimiter) => {
      return new RateLimiterRedis({ ...limit, storeClient, insuranceLimiter, customIncrTtlLuaScript: guardScript });
    }),
    shareStrikes: strikeSharing(redis, breaker),
    invalidate: (id) => void breaker.run("invalidation", () => invalidations.send(id)).catch(() => {}),
    onInvalidation: (receive) => invalidations.onInvalidation(receive),
    close: () => {
      breaker.end();
      invalidations.close();
      redis.disconnect();
    },
  };
}

/** The state of one gateway without others, or of one of several that share nothing: each counts in its own memory. */
export function localState(options: SharedStateOptions): SharedState {
  return {
    connectionTried: Promise.resolve(),
    limiter: options.memory,
    guards: guardsOf(options, (_limit, alone) => alone),
    shareStrikes: undefined,
    invalidate: () => {},
    onInvalidation: () => {},
    close: () => {},
  };
}

/** @param limiterOf makes the limiter of a limit; `alone` is that in memory, which counts this gateway's share */
function guardsOf(
  { gatewayCount, keyedUpdatesPerDay, onThrottled }: SharedStateOptions,
  limiterOf: (limit: GuardLimit, alone: MemoryGuardPoints) => MemoryGuardPoints | RateLimiterRedis,
): SharedState["guards"] {
  const guard = (limit: GuardLimit) => {
    const alone = new MemoryGuardPoints({ ...limit, points: Math.ceil(limit.points / gatewayCount) });
    return new AccountGuard(limit, limiterOf(limit, alone), onThrottled);
  };
  return {
    ownAccount: guard(ownAccountLimit),
    rotations: guard(rotationLimit),
    keyedUpdates: guard(keyedUpdateLimit(keyedUpdatesPerDay)),
  };
}

/** The commands that `RateLimiterRedis` uses, through the breaker. */
function throughBreaker(redis: Redis | Cluster, breaker: Breaker) {
  type Command = (args: readonly string[]) => Promise<unknown>;
  return {
    defineCommand: (...definition: Parameters<Redis["defineCommand"]>) => redis.defineCommand(...definition),
    rlflxIncr: (args: readonly string[]) =>
      breaker.run(args[0]!, () => (redis as unknown as { readonly rlflxIncr: Command }).rlflxIncr(args)),
  };
}
