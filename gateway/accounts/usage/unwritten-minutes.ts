/** The requests of accounts by minutes that are not in the database yet. */
import type { AccountMinute } from "./usage-store.ts";

const minuteMs = 60_000;

/**
 * Maximum counts that wait to be written, one for each account and minute: less than 30 MB. Where the database takes
 * none for so long that there are more, the oldest minutes are lost.
 */
const maxWaiting = 300_000;

interface Counts {
  requests: number;
  refused: number;
}

/** Counts the requests of each account and minute in memory, until they are written. */
export class UnwrittenMinutes {
  /** Counts by the start of the minute, then by account. */
  readonly #minutes = new Map<number, Map<string, Counts>>();
  /** Counts in all minutes. */
  #size = 0;

  /** @param nowMs Unix milliseconds */
  count(accountId: string, nowMs: number, isRefused: boolean): void {
    const startMs = nowMs - (nowMs % minuteMs);
    const counts = this.#minutes.get(startMs)?.get(accountId) ?? this.#open(accountId, startMs);
    counts.requests += 1;
    if (isRefused) counts.refused += 1;
  }

  /** The counts of an account that wait to be written. */
  of(accountId: string): AccountMinute[] {
    return [...this.#minutes].flatMap(([minuteStartMs, counts]) => {
      const own = counts.get(accountId);
      return own ? { accountId, minuteStartMs, ...own } : [];
    });
  }

  /**
   * Gives out what waits to be written, in parts of at most `size` accounts of one minute. A part is taken for written,
   * and forgotten, when the next one is asked for. What is counted meanwhile stays.
   */
  *parts(size: number): Generator<readonly AccountMinute[]> {
    for (const [minuteStartMs, ofMinute] of [...this.#minutes]) {
      const accounts = ofMinute.entries();
      // No more than there are now: an account that was written, and is counted again, comes again at the end.
      for (let left = ofMinute.size; left > 0; left -= size) {
        const some = accounts.take(Math.min(size, left));
        const part = Array.from(some, ([accountId, counts]) => ({ accountId, minuteStartMs, ...counts }));
        yield part;
        if (this.#minutes.get(minuteStartMs) !== ofMinute) continue; // lost, and perhaps begun again
        for (const written of part) this.#subtract(ofMinute, written);
      }
    }
  }

  /** Begins to count an account in a minute. Above the maximum, the oldest minute is lost. */
  #open(accountId: string, startMs: number): Counts {
    if (this.#size === maxWaiting) {
      const oldestMs = this.#minutes.keys().reduce((oldest, next) => Math.min(oldest, next));
      this.#size -= this.#minutes.get(oldestMs)!.size;
      this.#minutes.delete(oldestMs);
    }
    const ofMinute = this.#minutes.get(startMs) ?? new Map<string, Counts>();
    this.#minutes.set(startMs, ofMinute);
    const counts = { requests: 0, refused: 0 };
    ofMinute.set(accountId, counts);
    this.#size += 1;
    return counts;
  }

  #subtract(ofMinute: Map<string, Counts>, { accountId, minuteStartMs, requests, refused }: AccountMinute): void {
    const counts = ofMinute.get(accountId)!;
    counts.requests -= requests;
    counts.refused -= refused;
    if (counts.requests > 0) return;
    ofMinute.delete(accountId);
    this.#size -= 1;
    if (ofMinute.size === 0) this.#minutes.delete(minuteStartMs);
  }
}
