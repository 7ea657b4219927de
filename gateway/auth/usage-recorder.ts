import type { Logger } from "../../runtime/log.ts";
import type { KeyStore } from "./key-store.ts";

export interface UsageRecorderOptions {
  readonly store: Pick<KeyStore, "touch" | "countDeprecatedUse">;
  readonly log: Logger;
  /** How often what was gathered is written. */
  readonly intervalMs: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/**
 * Gathers which keys were used and who uses the deprecated route, and writes it now and then: never on a request's
 * path. Only holders of valid keys get here, so what it holds is bounded by their number.
 */
export class UsageRecorder {
  readonly #options: UsageRecorderOptions;
  readonly #timer: NodeJS.Timeout;
  #lastUse = new Map<string, number>();
  #deprecatedUse = new Map<string, number>();

  constructor(options: UsageRecorderOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.#flush(), options.intervalMs);
    this.#timer.unref();
  }

  keyUsed(keyId: string): void {
    this.#lastUse.set(keyId, this.#options.now());
  }

  deprecatedRouteUsed(accountId: string): void {
    this.#deprecatedUse.set(accountId, (this.#deprecatedUse.get(accountId) ?? 0) + 1);
  }

  /** Writes what is left and stops. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#flush();
  }

  async #flush(): Promise<void> {
    const { store, log, now } = this.#options;
    const [lastUse, deprecatedUse] = [this.#lastUse, this.#deprecatedUse];
    this.#lastUse = new Map();
    this.#deprecatedUse = new Map();
    try {
      await store.touch([...lastUse].map(([keyId, atMs]) => ({ keyId, atMs })));
      const atMs = now();
      await store.countDeprecatedUse(
        [...deprecatedUse].map(([accountId, requests]) => ({ accountId, requests, atMs })),
      );
    } catch (error) {
      log.warn({ err: error }, "the use of keys could not be noted");
      for (const [accountId, requests] of deprecatedUse) {
        this.#deprecatedUse.set(accountId, (this.#deprecatedUse.get(accountId) ?? 0) + requests);
      }
    }
  }
}
