import { LRUCache } from "lru-cache";
import type { Ban } from "../auth/key-store.ts";

export interface BanRules {
  /** Refusals within a minute that bring a ban. */
  readonly refusals: number;
  /** Minutes of the first, second, … ban; the last one repeats. */
  readonly ladderMinutes: readonly number[];
  /** After so long without a ban the ladder begins anew. */
  readonly forgetAfterMs: number;
}

/** The published ladder. */
export const publishedBanRules: BanRules = {
  refusals: 30,
  ladderMinutes: [5, 15, 60],
  forgetAfterMs: 24 * 60 * 60_000,
};

/** The ban that follows the last one. A ban that still runs stays as it is, so that replicas agree on one. */
export function nextBan(last: Ban | undefined, rules: BanRules, nowMs: number): Ban {
  if (last && last.untilMs > nowMs) return last;
  const remembered = last !== undefined && nowMs - last.untilMs < rules.forgetAfterMs;
  const step = remembered ? last.step + 1 : 1;
  const minutes = rules.ladderMinutes[Math.min(step, rules.ladderMinutes.length) - 1]!;
  return { untilMs: nowMs + minutes * 60_000, step, atMs: nowMs };
}

const minuteMs = 60_000;

/**
 * Counts the refusals of each key. A request that was under way when the key's first 429 went out does not count: its
 * sender could not know.
 */
export class RefusalCounter {
  readonly #rules: BanRules;
  readonly #counts = new LRUCache<string, { readonly sinceMs: number; count: number }>({ max: 100_000 });

  constructor(rules: BanRules) {
    this.#rules = rules;
  }

  /**
   * @param arrivedAtMs when the refused request arrived, Unix milliseconds
   * @returns true when this refusal is one too many
   */
  refused(keyId: string, arrivedAtMs: number, nowMs: number): boolean {
    const entry = this.#counts.get(keyId);
    if (!entry || nowMs - entry.sinceMs >= minuteMs) {
      this.#counts.set(keyId, { sinceMs: nowMs, count: 1 });
      return this.#rules.refusals <= 1;
    }
    if (arrivedAtMs <= entry.sinceMs) return false;
    entry.count += 1;
    if (entry.count < this.#rules.refusals) return false;
    this.#counts.delete(keyId);
    return true;
  }
}
