/** Counts the requests of accounts in the memory of this process. */
import { LRUCache } from "lru-cache";
import { type Count, charge, type Decision, type Limiter, type Window } from "./windows.ts";

export interface MemoryWindowsOptions {
  /** Callers that are remembered; the caller that was quiet the longest is forgotten first. */
  readonly maxCallers: number;
  /** Replicas that share the limits, each of them counting for itself. */
  readonly replicas: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/**
 * All windows of a caller in one step. With several replicas it also remembers what they have admitted together, and
 * which requests of its own they have not heard of.
 */
export class MemoryWindows implements Limiter {
  readonly #options: MemoryWindowsOptions;
  readonly #counts: LRUCache<string, readonly Count[]>;
  /** Decisions so far. */
  decided = 0;

  constructor(options: MemoryWindowsOptions) {
    this.#options = options;
    this.#counts = new LRUCache({ max: options.maxCallers });
  }

  async decide(id: string, windows: readonly Window[]): Promise<Decision> {
    this.decided += 1;
    const { now, replicas } = this.#options;
    const { decision, counts } = charge(this.#counts.get(id), windows, 1, now(), replicas);
    if (decision.admitted) this.#counts.set(id, counts);
    return decision;
  }

  async look(id: string, windows: readonly Window[]): Promise<Decision> {
    return this.currentLimits(id, windows);
  }

  /** The windows of a caller as this replica knows them, without a charge. */
  currentLimits(id: string, windows: readonly Window[]): Decision {
    const { now, replicas } = this.#options;
    return charge(this.#counts.get(id), windows, 0, now(), replicas).decision;
  }

  /** Takes what is kept for a caller, to send it to Redis: its unsent requests count as sent from now on. */
  takeUnsent(id: string): readonly Count[] | undefined {
    const counts = this.#counts.get(id);
    if (counts?.some(({ unsent }) => unsent > 0)) {
      this.#counts.set(
        id,
        counts.map((count) => ({ ...count, unsent: 0 })),
      );
    }
    return counts;
  }

  /** Restores counts that Redis did not receive. @param taken what `takeUnsent` gave */
  restoreUnsent(id: string, taken: readonly Count[]): void {
    const counts = this.#counts.get(id);
    this.#counts.set(
      id,
      taken.map((count, i) => {
        const now = counts?.[i];
        return now && now.resetAtMs === count.resetAtMs
          ? { ...now, unsent: now.unsent + count.unsent }
          : (now ?? count);
      }),
    );
  }

  /** Notes what all replicas together have admitted of a caller, for each window. */
  update(id: string, totals: readonly Pick<Count, "used" | "resetAtMs">[]): void {
    const counts = this.#counts.get(id);
    this.#counts.set(
      id,
      totals.map(({ used, resetAtMs }, i) => {
        const unsent = counts?.[i]?.resetAtMs === resetAtMs ? counts[i].unsent : 0;
        return { used, unsent, resetAtMs };
      }),
    );
  }
}
