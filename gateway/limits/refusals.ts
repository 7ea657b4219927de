/** Counts the refusals of keys, to find the keys that keep sending requests after a 429. */
import { LRUCache } from "lru-cache";

/** The time within which refusals of a key count together. */
export const refusalWindowMs = 60_000;

const shareIntervalMs = 100;
const maxKeys = 100_000;

/** Adds refusals, by key id, to the counts that all replicas share. @returns the totals of the same keys */
export type ShareRefusals = (refusals: ReadonlyMap<string, number>) => Promise<ReadonlyMap<string, number>>;

export interface RefusalCounterOptions {
  /** Refusals of a key within a minute that are too many. */
  readonly tooMany: number;
  /** Gets a key that has been refused too often, once. */
  readonly onTooMany: (keyId: string) => void;
  /** Undefined for a gateway without other replicas. */
  readonly share?: ShareRefusals | undefined;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** The refusals of one key. */
interface Entry {
  /** Unix milliseconds of the first one. */
  readonly sinceMs: number;
  count: number;
}

/**
 * Counts the refusals of each key within a minute. A request that was under way when the key's first 429 went out does
 * not count, because its sender could not know of the limit.
 */
export class RefusalCounter {
  readonly #options: RefusalCounterOptions;
  readonly #counts = new LRUCache<string, Entry>({ max: maxKeys });
  #unshared = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: RefusalCounterOptions) {
    this.#options = options;
  }

  /** @param arrivedAtMs arrival of the refused request, Unix milliseconds */
  refused(keyId: string, arrivedAtMs: number): void {
    const { tooMany, onTooMany, share, now } = this.#options;
    const nowMs = now();
    let entry = this.#counts.get(keyId);
    const ageMs = nowMs - (entry?.sinceMs ?? 0);
    if (!entry || ageMs >= refusalWindowMs || ageMs < 0) {
      // younger than nothing: the clock has been set back

      entry = { sinceMs: nowMs, count: 0 };
      this.#counts.set(keyId, entry);
    } else if (arrivedAtMs <= entry.sinceMs) {
      return;
    }
    entry.count += 1;
    if (entry.count === tooMany) onTooMany(keyId);
    if (share) {
      this.#unshared.set(keyId, (this.#unshared.get(keyId) ?? 0) + 1);
      this.#timer ??= setTimeout(() => void this.#share(share), shareIntervalMs);
    }
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  async #share(share: ShareRefusals): Promise<void> {
    const { tooMany, onTooMany } = this.#options;
    const added = this.#unshared;
    this.#unshared = new Map();
    this.#timer = undefined;
    try {
      for (const [keyId, total] of await share(added)) {
        // Only the replica whose refusals reached the limit reports the key.
        if (total >= tooMany && total - added.get(keyId)! < tooMany) onTooMany(keyId);
      }
    } catch {
      // Redis is away: each replica goes by its own count, and the breaker logs the fault.
    }
  }
}
