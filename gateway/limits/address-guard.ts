/** Limits the requests without a valid key, by the address they come from. */
import { LRUCache } from "lru-cache";
import { RateLimiterMemory, type RateLimiterRes } from "rate-limiter-flexible";
import type { Decision, Window } from "./windows.ts";

/** The window of an address after its latest request. */
interface LatestCount {
  readonly used: number;
  readonly remaining: number;
  /** Unix milliseconds. */
  readonly resetAtMs: number;
}

/**
 * Counts with rate-limiter-flexible, which has no bound on its keys and reads only asynchronously. So the latest result
 * for each address is kept in a bounded cache, and an address that leaves the cache leaves the limiter too.
 *
 * An address is a block as `addressBlock` makes it. Times go by `Date.now`, as those of the library do.
 */
export class AddressGuard {
  readonly #limiter: RateLimiterMemory;
  readonly #window: Window;
  readonly #latest: LRUCache<string, LatestCount>;
  /** The one window that each address has. */
  readonly windows: readonly Window[];

  /**
   * @param perMinute requests that an address has in a minute, which begins with its first request
   * @param maxAddresses addresses that are remembered; the one that was quiet the longest is forgotten first
   */
  constructor(perMinute: number, maxAddresses = 100_000) {
    this.#window = { name: "minute", seconds: 60, limit: perMinute };
    this.windows = [this.#window];
    this.#limiter = new RateLimiterMemory({ points: perMinute, duration: this.#window.seconds, keyPrefix: "" });
    this.#latest = new LRUCache({
      max: maxAddresses,
      dispose: (_count, address, reason) => {
        if (reason === "evict") void this.#limiter.delete(address);
      },
    });
  }

  /** Charges a request to its address. A denial is a value. */
  async charge(address: string): Promise<Decision> {
    let admitted = true;
    const counting = this.#limiter.consume(address);
    const nowMs = Date.now(); // the limiter's clock, read after the limiter has: no window may end later than announced
    const result = await counting.catch((denial: RateLimiterRes) => {
      admitted = false;
      return denial;
    });
    if (result.msBeforeNext > this.#window.seconds * 1_000) {
      await this.#limiter.delete(address); // the clock has been set back since the window began
      return await this.charge(address);
    }
    const previous = result.isFirstInDuration ? undefined : this.#latest.get(address);
    // Calculated once for each window: rounding must not move the end from one answer to the next.
    const resetAtMs = previous?.resetAtMs ?? nowMs + result.msBeforeNext;
    const latest = { used: result.consumedPoints, remaining: result.remainingPoints, resetAtMs };
    this.#latest.set(address, latest);
    return { admitted, windows: [{ ...this.#window, ...latest }], nowMs };
  }

  /** The window of an address as it is, without a charge. */
  currentLimits(address: string): Decision {
    const nowMs = Date.now();
    const latest = this.#latest.get(address);
    const newEndMs = nowMs + this.#window.seconds * 1_000;
    // A window that ends later than a new one would began before the clock was set back.
    const isRunning = latest !== undefined && latest.resetAtMs > nowMs && latest.resetAtMs <= newEndMs;
    const state = isRunning ? latest : { used: 0, remaining: this.#window.limit, resetAtMs: newEndMs };
    return { admitted: state.remaining > 0, windows: [{ ...this.#window, ...state }], nowMs };
  }
}
