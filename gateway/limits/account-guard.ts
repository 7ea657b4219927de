/** Limits what accounts ask about themselves, which their windows are not charged for. */
import type { RateLimiterAbstract, RateLimiterRes } from "rate-limiter-flexible";
import type { Decision, Window } from "./windows.ts";

/** What the guard asks of its limiter. */
export const accountGuardOptions = { points: 60, duration: 60, keyPrefix: "petstore:own-account" } as const;

const window: Window = { name: "minute", seconds: accountGuardOptions.duration, limit: accountGuardOptions.points };

/** Counts the requests of each account with rate-limiter-flexible. Its times go by `Date.now`, as the library's do. */
export class AccountGuard {
  readonly #limiter: RateLimiterAbstract;
  /** The one window that each account has. */
  readonly windows: readonly Window[] = [window];

  /**
   * @param limiter made with `accountGuardOptions`. It needs no other bound on its memory: it forgets an account after
   *   a minute, and only operators make accounts
   */
  constructor(limiter: RateLimiterAbstract) {
    this.#limiter = limiter;
  }

  /** Charges a request to its account. A denial is a value. */
  async charge(accountId: string): Promise<Decision> {
    const { consumedPoints, remainingPoints, msBeforeNext } = await this.#limiter
      .consume(accountId)
      .catch((denial: RateLimiterRes) => denial);
    const nowMs = Date.now();
    // In memory, a clock that was set back since makes the wait longer than the window.
    const resetAtMs = nowMs + Math.min(msBeforeNext, window.seconds * 1_000);
    return {
      admitted: consumedPoints <= window.limit,
      windows: [{ ...window, used: consumedPoints, remaining: remainingPoints, resetAtMs }],
      nowMs,
    };
  }
}
