import type { Logger } from "../../runtime/log.ts";
import type { DeprecatedUse, KeyStore } from "../auth/key-store.ts";
import type { Principal } from "../auth/principal.ts";
import { TrafficCounter, type TrafficStore } from "./traffic.ts";

export interface UsageRecorderOptions {
  readonly store: Pick<KeyStore, "touch" | "countDeprecatedUse">;
  readonly traffic: TrafficStore;
  readonly log: Logger;
  /** How often what was gathered is written. */
  readonly intervalMs: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Traffic is kept for so long. */
const trafficDays = 7;

const dayMs = 86_400_000;

/** Days whose use of the deprecated route waits to be written; older ones are lost when it cannot be for longer. */
const maxWaitingDays = 7;

/** Rows in one transaction: on SQLite everything else waits while one is open. */
const trafficBatch = 100;

/**
 * Gathers which keys were used, how much each account asks for, and who uses the deprecated route, and writes it now
 * and then: never on a request's path. Only holders of valid keys get here, so what it holds is bounded by their number.
 */
export class UsageRecorder {
  readonly #options: UsageRecorderOptions;
  readonly #timer: NodeJS.Timeout;
  readonly #traffic = new TrafficCounter();
  #lastUse = new Map<string, number>();
  /** By day and account. */
  #deprecatedUse = new Map<string, DeprecatedUse>();
  #writing: Promise<void> = Promise.resolve();

  constructor(options: UsageRecorderOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.#flush(), options.intervalMs);
    this.#timer.unref();
  }

  /** Notes a request with a valid key, also one that is refused for another reason. */
  used({ keyId, accountId }: Pick<Principal, "keyId" | "accountId">): void {
    const nowMs = this.#options.now();
    this.#lastUse.set(keyId, nowMs);
    this.#traffic.count(accountId, nowMs);
  }

  deprecatedRouteUsed(accountId: string): void {
    this.#countDeprecated({ accountId, requests: 1, atMs: this.#options.now() });
  }

  /** Writes what is left and stops. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#flush();
  }

  /** One after the other, so that a slow database gets no more of it the slower it is. */
  #flush(): Promise<void> {
    this.#writing = this.#writing.then(async () => {
      await this.#noted(this.#writeLastUse());
      await this.#noted(this.#writeDeprecatedUse());
      await this.#noted(this.#writeTraffic());
    });
    return this.#writing;
  }

  async #noted(work: Promise<void>): Promise<void> {
    await work.catch((err) => this.#options.log.warn({ err }, "the use of keys could not be noted"));
  }

  async #writeLastUse(): Promise<void> {
    const lastUse = this.#lastUse;
    this.#lastUse = new Map();
    await this.#options.store.touch([...lastUse].map(([keyId, atMs]) => ({ keyId, atMs })));
  }

  async #writeDeprecatedUse(): Promise<void> {
    const { store, now } = this.#options;
    // What was put back may stand behind later days: all gateways have to write the days in the same order.
    const counted = [...this.#deprecatedUse.values()].toSorted((a, b) => a.atMs - b.atMs);
    this.#deprecatedUse = new Map();
    try {
      await store.countDeprecatedUse(counted);
    } catch (error) {
      const oldestMs = now() - maxWaitingDays * dayMs;
      for (const use of counted) if (use.atMs > oldestMs) this.#countDeprecated(use);
      throw error;
    }
  }

  /** Adds to the day of the request, which may be over when it is written. */
  #countDeprecated({ accountId, requests, atMs }: DeprecatedUse): void {
    const dayStartMs = atMs - (atMs % dayMs); // days of Unix time are those of UTC
    const id = `${dayStartMs} ${accountId}`;
    const before = this.#deprecatedUse.get(id)?.requests ?? 0;
    this.#deprecatedUse.set(id, { accountId, requests: before + requests, atMs: dayStartMs });
  }

  async #writeTraffic(): Promise<void> {
    const { traffic, now } = this.#options;
    const minutes = this.#traffic.take();
    try {
      while (minutes.length > 0) {
        await traffic.add(minutes.slice(0, trafficBatch));
        minutes.splice(0, trafficBatch);
      }
    } catch (error) {
      this.#traffic.putBack(minutes);
      throw error;
    }
    await traffic.forgetBefore(now() - trafficDays * dayMs);
  }
}
