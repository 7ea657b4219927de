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

interface Caller {
  readonly id: string;
  readonly windows: readonly Window[];
}

/** What is kept for a caller: a count for each of its windows. */
interface Known extends Pick<Caller, "windows"> {
  readonly counts: readonly Count[];
}

/**
 * All windows of a caller in one step. With several replicas it also remembers what they have admitted together, and
 * which requests of its own they have not heard of.
 */
export class MemoryWindows implements Limiter {
  readonly #options: MemoryWindowsOptions;
  readonly #known: LRUCache<string, Known>;
  /** The callers whose unsent requests are on their way to Redis. */
  readonly #sending = new Set<string>();
  /** Decisions so far. */
  decided = 0;

  constructor(options: MemoryWindowsOptions) {
    this.#options = options;
    this.#known = new LRUCache({ max: options.maxCallers });
  }

  async decide(id: string, windows: readonly Window[]): Promise<Decision> {
    this.decided += 1;
    const { now, replicas } = this.#options;
    const { decision, counts } = charge(this.#known.get(id)?.counts, windows, 1, now(), replicas);
    if (decision.admitted) this.#known.set(id, { windows, counts });
    return decision;
  }

  async look(id: string, windows: readonly Window[]): Promise<Decision> {
    return this.currentLimits(id, windows);
  }

  /** The windows of a caller as this replica knows them, without a charge. */
  currentLimits(id: string, windows: readonly Window[]): Decision {
    const { now, replicas } = this.#options;
    return charge(this.#known.get(id)?.counts, windows, 0, now(), replicas).decision;
  }

  /** The callers that have a window which still runs; those with unsent requests come first. */
  running(): Caller[] {
    const nowMs = this.#options.now();
    const unsent: Caller[] = [];
    const others: Caller[] = [];
    // Each part begins with the caller that was quiet the longest: an `update` of all of them keeps their order.
    this.#known.rforEach(({ windows, counts }, id) => {
      if (!counts.some(({ resetAtMs }) => resetAtMs > nowMs)) return;
      (hasUnsent(counts) ? unsent : others).push({ id, windows });
    });
    return [...unsent, ...others];
  }

  /**
   * Takes what is kept for a caller, to send it to Redis. Its unsent requests count here until Redis has answered. No
   * other call sends them until then.
   */
  takeUnsent(id: string): readonly Count[] {
    const counts = this.#known.get(id)?.counts ?? [];
    if (!hasUnsent(counts)) return counts;
    if (this.#sending.has(id)) return counts.map((count) => ({ ...count, unsent: 0 }));
    this.#sending.add(id);
    return counts;
  }

  /** Lets the next call send what Redis did not receive. @param taken what `takeUnsent` gave */
  restoreUnsent(id: string, taken: readonly Count[]): void {
    if (hasUnsent(taken)) this.#sending.delete(id);
  }

  /**
   * Notes what all replicas together have admitted of a caller, for each window.
   *
   * @param taken what `takeUnsent` gave for the call: Redis has charged it
   */
  update(
    id: string,
    windows: readonly Window[],
    totals: readonly Pick<Count, "used" | "resetAtMs">[],
    taken: readonly Count[] = [],
  ): void {
    this.restoreUnsent(id, taken);
    const known = this.#known.get(id)?.counts;
    const unsentOf = (count: Count | undefined, resetAtMs: number) =>
      count?.resetAtMs === resetAtMs ? count.unsent : 0;
    const counts = totals.map(({ used, resetAtMs }, i) => {
      const unsent = Math.max(0, unsentOf(known?.[i], resetAtMs) - unsentOf(taken[i], resetAtMs));
      return { used, unsent, resetAtMs };
    });
    this.#known.set(id, { windows, counts });
  }
}

function hasUnsent(counts: readonly Count[]): boolean {
  return counts.some(({ unsent }) => unsent > 0);
}
