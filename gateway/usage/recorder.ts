/** Records the use of keys and accounts beside the requests. */
import type { Logger } from "../../runtime/log.ts";
import type { Principal } from "../auth/principal.ts";
import { MinuteCounter } from "./minute-counter.ts";
import type { DeprecatedUse, UsageStore } from "./store.ts";

export interface UsageRecorderOptions {
  readonly store: UsageStore;
  readonly log: Logger;
  /** Time between two writes. */
  readonly intervalMs: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const dayMs = 86_400_000;

/** How long the counts of minutes are kept in the database. */
const minutesKeptMs = 7 * dayMs;

/** Accounts and minutes in one transaction: on SQLite everything else waits while one is open. */
const minutesBatch = 100;

/** How long use of deprecated operations waits to be written. When the database is away for longer, it is lost. */
const deprecatedUseWaitsMs = 7 * dayMs;

/**
 * Records when keys are used, how many requests each account makes, and the use of deprecated operations.
 *
 * It counts in memory and writes at intervals, never on a request's path. Only requests with a valid key are recorded,
 * so the number of keys bounds its memory.
 */
export class UsageRecorder {
  readonly #options: UsageRecorderOptions;
  readonly #timer: NodeJS.Timeout;
  readonly #minutes = new MinuteCounter();
  #lastUse = new Map<string, number>();
  /** By day, account and operation. */
  #deprecatedUse = new Map<string, DeprecatedUse>();
  #writing: Promise<void> = Promise.resolve();

  constructor(options: UsageRecorderOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.#write(), options.intervalMs);
    this.#timer.unref();
  }

  /** Counts a request with a valid key, even when it is refused for another reason. */
  used({ keyId, accountId }: Pick<Principal, "keyId" | "accountId">): void {
    const nowMs = this.#options.now();
    this.#lastUse.set(keyId, nowMs);
    this.#minutes.count(accountId, nowMs);
  }

  /** Counts a request to a deprecated operation. @param operation its OpenAPI operationId */
  deprecatedRouteUsed(accountId: string, operation: string): void {
    this.#addDeprecatedUse({ accountId, operation, requests: 1, atMs: this.#options.now() });
  }

  /** Writes what is left and stops. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#write();
  }

  /** Starts only after the write before it, so a slow database does not get several at once. */
  #write(): Promise<void> {
    this.#writing = this.#writing.then(async () => {
      await this.#logFailure(this.#writeLastUse());
      await this.#logFailure(this.#writeDeprecatedUse());
      await this.#logFailure(this.#writeMinutes());
    });
    return this.#writing;
  }

  async #logFailure(writing: Promise<void>): Promise<void> {
    await writing.catch((err) => this.#options.log.warn({ err }, "the use of keys could not be recorded"));
  }

  async #writeLastUse(): Promise<void> {
    const lastUse = this.#lastUse;
    this.#lastUse = new Map();
    await this.#options.store.touch([...lastUse].map(([keyId, atMs]) => ({ keyId, atMs })));
  }

  async #writeDeprecatedUse(): Promise<void> {
    const { store, now } = this.#options;
    const counted = [...this.#deprecatedUse.values()];
    this.#deprecatedUse = new Map();
    try {
      await store.countDeprecatedUse(counted);
    } catch (error) {
      const oldestMs = now() - deprecatedUseWaitsMs;
      for (const use of counted) if (use.atMs > oldestMs) this.#addDeprecatedUse(use);
      throw error;
    }
  }

  /** Adds to the day of the request, which may be over when it is written. */
  #addDeprecatedUse({ accountId, operation, requests, atMs }: DeprecatedUse): void {
    const dayStartMs = atMs - (atMs % dayMs); // days of Unix time are those of UTC
    const id = `${dayStartMs} ${accountId} ${operation}`;
    const before = this.#deprecatedUse.get(id)?.requests ?? 0;
    this.#deprecatedUse.set(id, { accountId, operation, requests: before + requests, atMs: dayStartMs });
  }

  async #writeMinutes(): Promise<void> {
    const { store, now } = this.#options;
    const minutes = this.#minutes.take();
    try {
      while (minutes.length > 0) {
        await store.addMinutes(minutes.slice(0, minutesBatch));
        minutes.splice(0, minutesBatch);
      }
    } catch (error) {
      this.#minutes.putBack(minutes);
      throw error;
    }
    await store.forgetMinutesBefore(now() - minutesKeptMs);
  }
}
