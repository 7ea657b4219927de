import type { Cluster, Redis } from "ioredis";
import { LRUCache } from "lru-cache";

const windowMs = 60_000;
const shareIntervalMs = 100;
const maxKeys = 100_000;

export interface RefusalCounterOptions {
  /** Refusals within a minute that are too many. */
  readonly tooMany: number;
  /** Called once a key has been refused too often. */
  readonly onTooMany: (keyId: string) => void;
  /** Adds to the counts that all replicas share, and tells what they came to; absent when there is one replica. */
  readonly share?: ((refusals: ReadonlyMap<string, number>) => Promise<ReadonlyMap<string, number>>) | undefined;
  /** Unix milliseconds. */
  readonly now: () => number;
}

interface Entry {
  /** When the first refusal went out. */
  readonly sinceMs: number;
  count: number;
}

/**
 * Counts the refusals of each key within a minute. A request that was under way when the key's first 429 went out does
 * not count: its sender could not know.
 */
export class RefusalCounter {
  readonly #options: RefusalCounterOptions;
  readonly #counts = new LRUCache<string, Entry>({ max: maxKeys });
  #unshared = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: RefusalCounterOptions) {
    this.#options = options;
  }

  /** @param arrivedAtMs when the refused request arrived, Unix milliseconds */
  refused(keyId: string, arrivedAtMs: number): void {
    const { tooMany, onTooMany, share, now } = this.#options;
    const nowMs = now();
    let entry = this.#counts.get(keyId);
    if (!entry || nowMs - entry.sinceMs >= windowMs) {
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

  async #share(share: NonNullable<RefusalCounterOptions["share"]>): Promise<void> {
    const { tooMany, onTooMany } = this.#options;
    const added = this.#unshared;
    this.#unshared = new Map();
    this.#timer = undefined;
    try {
      for (const [keyId, total] of await share(added)) {
        // Of all replicas, the one whose refusals were one too many says so.
        if (total >= tooMany && total - added.get(keyId)! < tooMany) onTooMany(keyId);
      }
    } catch {
      // Redis is away: each replica goes by its own count, and the breaker tells of it.
    }
  }
}

/** Shares counts of refusals over Redis, in keys that end with their minute. */
export function shareRefusals(redis: Redis | Cluster): NonNullable<RefusalCounterOptions["share"]> {
  return async (refusals) => {
    const totals = await Promise.all(
      [...refusals].map(async ([keyId, count]) => {
        const name = `petstore:refusals:${keyId}`;
        // The end comes first and with the count: one that was lost in between would never end.
        const done = await redis.multi().set(name, 0, "PX", windowMs, "NX").incrby(name, count).exec();
        const [error, total] = done![1] as [Error | null, number];
        if (error) throw error;
        return [keyId, total] as const;
      }),
    );
    return new Map(totals);
  };
}
