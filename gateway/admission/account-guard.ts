/** Limits what an account or a family of keys may do beside its windows. */
import { LRUCache } from "lru-cache";
import { type RateLimiterAbstract, RateLimiterMemory, RateLimiterRes } from "rate-limiter-flexible";
import type { PlanName } from "../accounts/keys/plans.ts";
import type { RequestContext } from "../http/request-context.ts";
import { type Decision, limitHeaders, type Window } from "../limits/windows.ts";
import { overLimit } from "./admission-errors.ts";

/** A limit of rate-limiter-flexible: points for each id in a time of `duration` seconds. */
export interface GuardLimit {
  readonly points: number;
  readonly duration: 60 | 86_400;
  /** The beginning of its keys on Redis. What follows `petstore:` names its window in the limit headers. */
  readonly keyPrefix: `petstore:${string}`;
}

/** Limit on `/rate_limit` and `/usage`, which are not charged to the account's windows. */
export const ownAccountLimit: GuardLimit = {
  points: 60,
  duration: 60,
  keyPrefix: "petstore:own-account",
};

/** The limit on rotations of the keys of a family: each that succeeds adds a row to the database for good. */
export const rotationLimit: GuardLimit = {
  points: 100,
  duration: 86_400,
  keyPrefix: "petstore:rotations",
};

/**
 * Entries that an account sends with an Idempotency-Key: each that is updated leaves a record in the database for at
 * least 26 hours. The guard cannot know which are repeats, so they count, too.
 */
export function keyedUpdateLimit(perDay: number): GuardLimit {
  return { points: perDay, duration: 86_400, keyPrefix: "petstore:keyed-updates" };
}

/**
 * What `RateLimiterRedis` runs: it adds points only if all of them fit, so that a large request which is refused takes
 * nothing from smaller ones. When the clock of Redis was set back to before a window began, the window begins again.
 * ARGV: points to add, seconds, points of the limit. Returns the sum and its time left in ms.
 */
export const guardScript = `
local ttl = redis.call('pttl', KEYS[1])
if ttl > 1000 * ARGV[2] then ttl = 0 end
local consumed = (ttl > 0 and redis.call('get', KEYS[1]) or 0) + ARGV[1]
if consumed <= tonumber(ARGV[3]) then
  if ttl > 0 then
    redis.call('incrby', KEYS[1], ARGV[1])
  else
    redis.call('set', KEYS[1], ARGV[1], 'EX', ARGV[2])
  end
end
return { consumed, ttl > 0 and ttl or 1000 * ARGV[2] }
`;

/** A limiter with the rule of `guardScript`, in the memory of this process. */
export class MemoryGuardPoints extends RateLimiterMemory {
  /** Resolves when the charge before has been made: nothing may come between a look at the points and their charge. */
  #last: Promise<unknown> = Promise.resolve();

  override consume(id: string, points = 1): Promise<RateLimiterRes> {
    const charged = this.#last.then(() => this.#consumeNext(id, points));
    this.#last = charged.catch(() => {});
    return charged;
  }

  async #consumeNext(id: string, points: number): Promise<RateLimiterRes> {
    const kept = await this.get(id);
    const { consumedPoints, msBeforeNext } =
      kept && kept.msBeforeNext > 0 ? kept : { consumedPoints: 0, msBeforeNext: this.duration * 1_000 };
    if (consumedPoints + points > this.points)
      throw new RateLimiterRes(0, msBeforeNext, consumedPoints + points, false);
    return await super.consume(id, points);
  }
}

/** Maximum ids of which a guard remembers that nothing is left. Redis is asked about the others. */
const maxExhausted = 10_000;

/** How long that is remembered at most: after an outage, Redis may have points left for the id. */
const maxExhaustedMs = 60_000;

/**
 * Counts with rate-limiter-flexible, in one window for each id. The times of its decisions go by `Date.now`, as the
 * library's do.
 */
export class AccountGuard {
  readonly #limiter: RateLimiterAbstract;
  readonly #onThrottled: (plan: PlanName) => void;
  /** The ids that Redis is not asked about, and when their windows end, by `performance.now()`. */
  readonly #exhausted = new LRUCache<string, number>({ max: maxExhausted, ttl: maxExhaustedMs, ttlResolution: 0 });
  /** The one window that each id has. */
  readonly windows: readonly Window[];

  /**
   * @param limit one of those above, for headers
   * @param limiter counts by it, or by this gateway's share of it. It needs no other bound on its memory: it forgets an
   *   id after its window, and only operators make accounts and families of keys
   * @param onThrottled gets the plan of every caller that is refused
   */
  constructor(limit: GuardLimit, limiter: RateLimiterAbstract, onThrottled: (plan: PlanName) => void) {
    this.#limiter = limiter;
    this.#onThrottled = onThrottled;
    const { keyPrefix, points, duration: lengthSeconds } = limit;
    this.windows = [{ name: keyPrefix.replace("petstore:", ""), lengthSeconds, limit: points }];
  }

  /**
   * Charges a request. The answer to a refused one shows the limit of this guard; it leads to no ban.
   *
   * @param id of the account or the family
   * @throws ApiError rate_limit_exceeded
   */
  async admit(context: RequestContext, id: string, cost = 1): Promise<void> {
    const decision = await this.charge(id, cost);
    if (decision.admitted) return;
    context.limitHeaders = limitHeaders(this.windows, decision);
    this.#onThrottled(context.principal!.plan);
    throw overLimit(decision);
  }

  /**
   * Charges an account or a family if the limit has room. If it has none, the decision says so and shows nothing left.
   */
  async charge(id: string, cost = 1): Promise<Decision> {
    const window = this.windows[0]!;
    const exhaustedMs = (this.#exhausted.get(id) ?? 0) - performance.now();
    if (exhaustedMs > 0) return decision(window, false, new RateLimiterRes(0, exhaustedMs));
    try {
      return decision(window, true, await this.#limiter.consume(id, cost));
    } catch (cause) {
      const denial = cause as RateLimiterRes;
      const denied = decision(window, false, denial);
      // A smaller request may fit where a larger one is refused. A gateway without Redis has spent only its share, so
      // the account is not exhausted.
      const isExhausted = cost === 1 && denial.consumedPoints > window.limit;
      if (isExhausted) this.#exhausted.set(id, performance.now() + denied.states[0]!.resetAtMs - denied.nowMs);
      return denied;
    }
  }
}

/**
 * Makes a decision of what a limiter has answered. The time left is cut to the window's length: more than that means
 * that the clock was set back.
 */
function decision(window: Window, admitted: boolean, { remainingPoints, msBeforeNext }: RateLimiterRes): Decision {
  const nowMs = Date.now();
  const resetAtMs = nowMs + Math.min(msBeforeNext, window.lengthSeconds * 1_000);
  const state = { ...window, used: window.limit - remainingPoints, remaining: remainingPoints, resetAtMs };
  return { admitted, states: [state], nowMs };
}
