/** Limits what an account or a line of keys may do beside its windows. */
import type { RateLimiterAbstract, RateLimiterRes } from "rate-limiter-flexible";
import type { Decision, Window } from "./windows.ts";

/** What accounts ask about themselves, which their windows are not charged for. */
export const accountGuardOptions = { points: 60, duration: 60, keyPrefix: "petstore:own-account" } as const;

/** Attempts to rotate the keys of a line: each that succeeds adds a row to the database for good. */
export const rotationGuardOptions = { points: 100, duration: 86_400, keyPrefix: "petstore:rotations" } as const;

/** Counts with rate-limiter-flexible, in one window for each id. Its times go by `Date.now`, as the library's do. */
export class AccountGuard {
  readonly #limiter: RateLimiterAbstract;
  /** The one window that each id has. */
  readonly windows: readonly Window[];

  /**
   * @param limiter made with one of the options above. It needs no other bound on its memory: it forgets an id after
   *   its window, and only operators make accounts and lines of keys
   */
  constructor(limiter: RateLimiterAbstract) {
    this.#limiter = limiter;
    const { points: limit, duration: seconds } = limiter;
    this.windows = [{ name: seconds === 60 ? "minute" : "day", seconds, limit }];
  }

  /** Charges a request to an account or a line. A denial is a value. */
  async charge(id: string): Promise<Decision> {
    let admitted = true;
    const { consumedPoints, remainingPoints, msBeforeNext } = await this.#limiter
      .consume(id)
      .catch((denial: RateLimiterRes) => {
        admitted = false;
        return denial;
      });
    const window = this.windows[0]!;
    const nowMs = Date.now();
    // In memory, a clock that was set back since makes the wait longer than the window.
    const resetAtMs = nowMs + Math.min(msBeforeNext, window.seconds * 1_000);
    return {
      admitted,
      windows: [{ ...window, used: consumedPoints, remaining: remainingPoints, resetAtMs }],
      nowMs,
    };
  }
}
