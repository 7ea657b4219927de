import { LRUCache } from "lru-cache";
import { type RateLimiterAbstract, RateLimiterMemory, RateLimiterRes } from "rate-limiter-flexible";
import { type Count, charge, type Decision, type Window } from "./windows.ts";

/** The answer of a limiter of several windows, in the form in which rate-limiter-flexible hands answers on. */
export class WindowsRes extends RateLimiterRes {
  readonly decision: Decision;

  constructor(decision: Decision) {
    super();
    this.decision = decision;
  }
}

/** What rate-limiter-flexible hands through to the limiters of windows. */
export interface WindowsRequest {
  readonly windows: readonly Window[];
}

export interface MemoryWindowsOptions {
  /** Callers that are remembered; the one that was quiet for longest is forgotten first. */
  readonly maxCallers: number;
  /** How many replicas share the limits, each of them counting for itself. */
  readonly replicas: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/**
 * All windows of a caller in one step, in the memory of this process. A union of rate-limiter-flexible's limiters
 * charges the long window for requests that the short one refuses, so this limiter of its kind counts for itself.
 */
export class MemoryWindows extends RateLimiterMemory {
  readonly #options: MemoryWindowsOptions;
  readonly #counts: LRUCache<string, readonly Count[]>;
  /** Decisions so far. */
  decided = 0;

  constructor(options: MemoryWindowsOptions) {
    super({ points: 1, duration: 1 });
    this.#options = options;
    this.#counts = new LRUCache({ max: options.maxCallers });
  }

  /** How the caller stands, without charging it. */
  peek(key: string, windows: readonly Window[]): Decision {
    const { now, replicas } = this.#options;
    return charge(this.#counts.get(key), windows, 0, now(), replicas).decision;
  }

  /** Resolves or, as rate-limiter-flexible does for a denial, rejects with a WindowsRes. */
  override async consume(key: string, _points: number, { windows }: WindowsRequest): Promise<WindowsRes> {
    this.decided += 1;
    const { now, replicas } = this.#options;
    const { decision, counts } = charge(this.#counts.get(key), windows, 1, now(), replicas);
    if (!decision.admitted) throw new WindowsRes(decision);
    this.#counts.set(key, counts);
    return new WindowsRes(decision);
  }

  /** What is kept for a caller; its requests that the others have not heard of are handed over with it. */
  handOver(key: string): readonly Count[] | undefined {
    const counts = this.#counts.get(key);
    if (counts?.some(({ away }) => away > 0)) {
      this.#counts.set(
        key,
        counts.map((count) => ({ ...count, away: 0 })),
      );
    }
    return counts;
  }

  /** Takes back what was handed over to no avail. */
  takeBack(key: string, handed: readonly Count[]): void {
    const counts = this.#counts.get(key);
    this.#counts.set(
      key,
      handed.map((count, i) => {
        const now = counts?.[i];
        return now && now.resetAtMs === count.resetAtMs ? { ...now, away: now.away + count.away } : (now ?? count);
      }),
    );
  }

  /** Notes how the caller stands with all replicas together. */
  learn(key: string, heard: readonly { readonly used: number; readonly resetAtMs: number }[]): void {
    const counts = this.#counts.get(key);
    this.#counts.set(
      key,
      heard.map(({ used, resetAtMs }, i) => {
        const away = counts?.[i]?.resetAtMs === resetAtMs ? counts[i].away : 0;
        return { used, away, resetAtMs };
      }),
    );
  }
}

/** Asks a limiter of windows; a denial is a value here. */
export function decide(limiter: RateLimiterAbstract, key: string, windows: readonly Window[]): Promise<Decision> {
  return limiter.consume(key, 1, { windows }).then(decisionOf, decisionOf);
}

function decisionOf(answer: unknown): Decision {
  if (answer instanceof WindowsRes) return answer.decision;
  throw answer;
}
