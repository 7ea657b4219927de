/** Counts requests by account and minute, in memory. */
import type { AccountMinute } from "./store.ts";

const minuteMs = 60_000;

/** Minutes that wait to be written. When the database is away for longer, the oldest ones are lost. */
const maxWaitingMinutes = 60;

/** Counts the requests of each account and minute in memory, until they are written. */
export class MinuteCounter {
  readonly #minutes = new Map<number, Map<string, number>>();
  /** The minute in which requests are counted, and its counts by account. */
  #startMs = Number.NaN;
  #counts = new Map<string, number>();

  /** @param nowMs Unix milliseconds */
  count(accountId: string, nowMs: number): void {
    const isSameMinute = nowMs >= this.#startMs && nowMs < this.#startMs + minuteMs;
    if (!isSameMinute) this.#select(nowMs - (nowMs % minuteMs));
    this.#counts.set(accountId, (this.#counts.get(accountId) ?? 0) + 1);
  }

  /** Returns all counts and starts again at none. */
  take(): AccountMinute[] {
    const taken = [...this.#minutes].flatMap(([minuteStartMs, counts]) =>
      [...counts].map(([accountId, requests]) => ({ accountId, minuteStartMs, requests })),
    );
    this.#minutes.clear();
    this.#startMs = Number.NaN;
    return taken;
  }

  /** Restores counts that were taken and could not be written. */
  putBack(minutes: readonly AccountMinute[]): void {
    for (const { accountId, minuteStartMs, requests } of minutes) {
      this.#select(minuteStartMs);
      this.#counts.set(accountId, (this.#counts.get(accountId) ?? 0) + requests);
    }
  }

  #select(startMs: number): void {
    this.#startMs = startMs;
    this.#counts = this.#minutes.get(startMs) ?? new Map();
    this.#minutes.set(startMs, this.#counts);
    if (this.#minutes.size > maxWaitingMinutes) this.#minutes.delete(Math.min(...this.#minutes.keys()));
  }
}
