/** Records the use of keys and accounts in the background. */
import type { Logger } from "../../../runtime/log.ts";
import type { ChargeOutcome } from "../../admission/admission.ts";
import type { Principal } from "../keys/principal.ts";
import { UnwrittenMinutes } from "./unwritten-minutes.ts";
import type { DeprecatedUse, UsageStore, UseRange, UseStep } from "./usage-store.ts";

export interface UsageRecorderOptions {
  readonly store: UsageStore;
  readonly log: Logger;
  /** Time between two writes. */
  readonly intervalMs: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const dayMs = 86_400_000;

/** How long the counts of minutes are kept in the database: callers may ask for 7 days. */
export const minutesKeptMs = 8 * dayMs;

/** Counts in one transaction: on SQLite everything else waits while one is open. */
const countsBatch = 100;

/** How long use of deprecated operations waits to be written. When the database is away for longer, it is lost. */
const deprecatedUseWaitsMs = 7 * dayMs;

/** Maximum attempts at a read. Another one begins when a write began meanwhile, and waits for the end of that write. */
const maxReads = 3;

/** The use of an account in a range of time. */
export interface UsageSeries {
  /** Those with requests, in no order. */
  readonly steps: readonly UseStep[];
  /** Requests to deprecated operations, the sum of whole days. */
  readonly deprecated: number;
}

/**
 * Records when keys are used, how many requests each account makes, and the use of deprecated operations.
 *
 * It counts in memory and writes at intervals, never on a request's path. Only requests with a valid key are recorded.
 * So the number of keys bounds the last uses; unwritten-minutes.ts bounds the counts.
 */
export class UsageRecorder {
  readonly #options: UsageRecorderOptions;
  readonly #timer: NodeJS.Timeout;
  readonly #minutes = new UnwrittenMinutes();
  /** Unix milliseconds of the latest use of each key, by key id, until that use is written. */
  readonly #lastUse = new Map<string, number>();
  /** Counts by day, account and operation. */
  #deprecatedUse = new Map<string, DeprecatedUse>();
  /** The write under way. */
  #writing: Promise<void> | undefined;
  /** The part of it that reads have to wait for. */
  #writingCounts: Promise<void> = Promise.resolve();
  /** Writes that have begun. */
  #writes = 0;

  constructor(options: UsageRecorderOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.#write(), options.intervalMs);
    this.#timer.unref();
  }

  /** Counts a request with a valid key. An uncharged one counts only as a use of its key. */
  readonly used = ({ keyId, accountId }: Pick<Principal, "keyId" | "accountId">, outcome: ChargeOutcome): void => {
    const nowMs = this.#options.now();
    this.#lastUse.set(keyId, nowMs);
    if (outcome !== "uncharged") this.#minutes.count(accountId, nowMs, outcome === "refused");
  };

  /** Counts a request to a deprecated operation. @param operation its OpenAPI operationId */
  deprecatedUsed(accountId: string, operation: string): void {
    this.#addDeprecatedUse({ accountId, operation, requests: 1, atMs: this.#options.now() });
  }

  /**
   * The use of an account since `range.fromMs`: what is stored, and what this gateway has not written yet.
   *
   * @throws the error of the database; Error when each attempt met a write
   */
  async read(range: UseRange): Promise<UsageSeries> {
    const { store } = this.#options;
    for (let attempt = 0; attempt < maxReads; attempt++) {
      await this.#writingCounts;
      const writes = this.#writes;
      const [steps, deprecated] = await Promise.all([store.readSteps(range), store.readDeprecatedUse(range)]);
      // A write that overlapped this read may or may not be in its result.
      if (writes === this.#writes) return this.#withUnwritten(range, { steps, deprecated });
    }
    throw new Error("counts were being written at each read of them");
  }

  /** Writes everything that was counted before the call. A failure is logged, and the counts are kept. */
  async save(): Promise<void> {
    await this.#writing;
    await this.#write();
  }

  /** Writes what is left and stops. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.save();
  }

  /** Joins the write under way, so that a slow database does not get several at once. */
  #write(): Promise<void> {
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
    });
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    this.#writes += 1;
    this.#writingCounts = this.#logFailure(this.#writeDeprecatedUse()).then(() =>
      this.#logFailure(this.#writeMinutes()),
    );
    await this.#writingCounts;
    await this.#logFailure(this.#writeLastUse());
  }

  async #logFailure(writing: Promise<void>): Promise<void> {
    await writing.catch((err) => this.#options.log.warn({ err }, "the use of keys is written later: counts are kept"));
  }

  async #writeLastUse(): Promise<void> {
    const uses = Array.from(this.#lastUse, ([keyId, atMs]) => ({ keyId, atMs }));
    await this.#options.store.touch(uses);
    for (const { keyId, atMs } of uses) if (this.#lastUse.get(keyId) === atMs) this.#lastUse.delete(keyId);
  }

  async #writeDeprecatedUse(): Promise<void> {
    const { store, now } = this.#options;
    const unwritten = [...this.#deprecatedUse.values()];
    this.#deprecatedUse = new Map();
    try {
      for (; unwritten.length > 0; unwritten.splice(0, countsBatch)) {
        await store.countDeprecatedUse(unwritten.slice(0, countsBatch));
      }
    } catch (error) {
      const oldestMs = now() - deprecatedUseWaitsMs;
      for (const use of unwritten) if (use.atMs > oldestMs) this.#addDeprecatedUse(use);
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

  #withUnwritten({ accountId, fromMs, stepMs }: UseRange, stored: UsageSeries): UsageSeries {
    const unwritten = this.#minutes
      .of(accountId)
      .filter(({ minuteStartMs }) => minuteStartMs >= fromMs)
      .map(({ minuteStartMs, ...counts }) => ({ ...counts, stepStartMs: minuteStartMs - (minuteStartMs % stepMs) }));
    const deprecated = [...this.#deprecatedUse.values()]
      .filter((use) => use.accountId === accountId && use.atMs + dayMs > fromMs)
      .reduce((sum, { requests }) => sum + requests, stored.deprecated);
    return { steps: sumUp([...stored.steps, ...unwritten]), deprecated };
  }

  async #writeMinutes(): Promise<void> {
    const { store, now } = this.#options;
    for (const part of this.#minutes.parts(countsBatch)) await store.addMinutes(part);
    await store.forgetMinutesBefore(now() - minutesKeptMs);
  }
}

/** Adds up the steps that begin at the same time. */
function sumUp(steps: readonly UseStep[]): UseStep[] {
  return [...Map.groupBy(steps, ({ stepStartMs }) => stepStartMs)].map(([stepStartMs, same]) => ({
    stepStartMs,
    requests: same.reduce((sum, { requests }) => sum + requests, 0),
    refused: same.reduce((sum, { refused }) => sum + refused, 0),
  }));
}
