/** Counts requests by account and minute, in memory. */
import type { AccountMinute } from "./usage-store.ts";

const minuteMs = 60_000;

/** Minutes that wait to be written. When the database is away for longer, the oldest ones are lost. */
const maxWaitingMinutes = 60;

/** What is counted of an account in one minute. */
interface Counts {
  requests: number;
  refused: number;
}

/** Counts the requests of each account and minute in memory, until they are written. */
export class MinuteCounter {
  readonly #minutes = new Map<number, Map<string, Counts>>();
  /** The minute in which requests are counted, and its counts by account. */
  #startMs = Number.NaN;
  #counts = new Map<string, Counts>();

  /** @param nowMs Unix milliseconds */
  count(accountId: string, nowMs: number, isRefused: boolean): void {
    const isSameMinute = nowMs >= this.#startMs && nowMs < this.#startMs + minuteMs;
    if (!isSameMinute) this.#select(nowMs - (nowMs % minuteMs));
    this.#add(accountId, 1, isRefused ? 1 : 0);
  }

  /** The counts of an account that wait to be written. */
  of(accountId: string): AccountMinute[] {
    return [...this.#minutes].flatMap(([minuteStartMs, counts]) => {
      const own = counts.get(accountId);
      return own ? { accountId, minuteStartMs, ...own } : [];
    });
  }

  /** Returns all counts and starts again at none. */
  take(): AccountMinute[] {
    const taken = [...this.#minutes].flatMap(([minuteStartMs, counts]) =>
      [...counts].map(([accountId, own]) => ({ accountId, minuteStartMs, ...own })),
    );
    this.#minutes.clear();
    this.#startMs = Number.NaN;
    return taken;
  }

  /** Restores counts that were taken and could not be written. */
  putBack(minutes: readonly AccountMinute[]): void {
    for (const { accountId, minuteStartMs, requests, refused } of minutes) {
      this.#select(minuteStartMs);
      this.#add(accountId, requests, refused);
    }
  }

  /** Adds to the selected minute. */
  #add(accountId: string, requests: number, refused: number): void {
    const counts = this.#counts.get(accountId) ?? { requests: 0, refused: 0 };
    counts.requests += requests;
    counts.refused += refused;
    this.#counts.set(accountId, counts);
  }

  #select(startMs: number): void {
    this.#startMs = startMs;
    this.#counts = this.#minutes.get(startMs) ?? new Map();
    this.#minutes.set(startMs, this.#counts);
    if (this.#minutes.size > maxWaitingMinutes) this.#minutes.delete(Math.min(...this.#minutes.keys()));
  }
}
