/** Limits what an account or a family of keys may do beside its windows. */
import { type RateLimiterAbstract, RateLimiterMemory, RateLimiterRes } from "rate-limiter-flexible";
import type { PlanName } from "../accounts/keys/plans.ts";
import type { RequestContext } from "../http/request-context.ts";
import { limitHeaders } from "../limits/limit-headers.ts";
import type { Decision, Window } from "../limits/windows.ts";
import { overLimit } from "./denials.ts";

/** A limit of rate-limiter-flexible: points for each id in a time of `duration` seconds. */
export interface GuardLimit {
  readonly points: number;
  readonly duration: 60 | 86_400;
  /** Its name on Redis. */
  readonly keyPrefix: `petstore:${string}`;
  /**
   * Points at which an id is refused without Redis. Set only where each request costs one point: else a cheaper one
   * might fit.
   */
  readonly inMemoryBlockOnConsumed?: number;
}

/** What accounts ask about themselves, which their windows are not charged for. */
export const ownAccountLimit: GuardLimit = {
  points: 60,
  duration: 60,
  keyPrefix: "petstore:own-account",
  inMemoryBlockOnConsumed: 60,
};

/** Attempts to rotate the keys of a family: each that succeeds adds a row to the database for good. */
export const rotationLimit: GuardLimit = {
  points: 100,
  duration: 86_400,
  keyPrefix: "petstore:rotations",
  inMemoryBlockOnConsumed: 100,
};

/**
 * Entries that an account sends with an Idempotency-Key: each that is updated leaves a record in the database for 25
 * hours. The guard cannot know which are repeats, so they count, too.
 */
export function keyedUpdateLimit(perDay: number): GuardLimit {
  return { points: perDay, duration: 86_400, keyPrefix: "petstore:keyed-updates" };
}

/**
 * What `RateLimiterRedis` runs: it adds points only if all of them fit, so that a large request which is refused takes
 * nothing from smaller ones. ARGV: points to add, seconds, points of the limit. Returns the sum and its time left in ms.
 */
export const guardScript = `
local ttl = redis.call('pttl', KEYS[1])
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

/** Does the same in the memory of this process. */
export class GuardMemory extends RateLimiterMemory {
  override async consume(id: string, points = 1): Promise<RateLimiterRes> {
    const kept = await this.get(id);
    const { consumedPoints, msBeforeNext } =
      kept && kept.msBeforeNext > 0 ? kept : { consumedPoints: 0, msBeforeNext: this.duration * 1_000 };
    if (consumedPoints + points > this.points)
      throw new RateLimiterRes(0, msBeforeNext, consumedPoints + points, false);
    return await super.consume(id, points);
  }
}

/** Counts with rate-limiter-flexible, in one window for each id. Its times go by `Date.now`, as the library's do. */
export class AccountGuard {
  readonly #limiter: RateLimiterAbstract;
  readonly #onRefused: (plan: PlanName) => void;
  /** The one window that each id has. */
  readonly windows: readonly Window[];

  /**
   * @param limiter has one of the limits above. It needs no other bound on its memory: it forgets an id after its
   *   window, and only operators make accounts and families of keys
   * @param onRefused gets the plan of every caller that is refused
   */
  constructor(limiter: RateLimiterAbstract, onRefused: (plan: PlanName) => void) {
    this.#limiter = limiter;
    this.#onRefused = onRefused;
    const { points: limit, duration: seconds } = limiter;
    this.windows = [{ name: seconds === 60 ? "minute" : "day", seconds, limit }];
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
    this.#onRefused(context.principal!.plan);
    throw overLimit(decision);
  }

  /** Charges an account or a family, unless it refuses. A denial is returned, not thrown, and shows nothing left. */
  async charge(id: string, cost = 1): Promise<Decision> {
    let admitted = true;
    const { remainingPoints: remaining, msBeforeNext } = await this.#limiter
      .consume(id, cost)
      .catch((denial: RateLimiterRes) => {
        admitted = false;
        return denial;
      });
    const window = this.windows[0]!;
    if (msBeforeNext > window.seconds * 1_000) {
      await this.#limiter.delete(id); // the clock has been set back since the window began
      return await this.charge(id, cost);
    }
    const nowMs = Date.now();
    const state = { ...window, used: window.limit - remaining, remaining, resetAtMs: nowMs + msBeforeNext };
    return { admitted, windows: [state], nowMs };
  }
}
