import type { Ban, KeyStore } from "../auth/key-store.ts";

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

export interface BannerOptions {
  readonly store: Pick<KeyStore, "lastBan" | "ban">;
  readonly rules: BanRules;
  /** Makes the change known: here at once, elsewhere as soon as they hear. */
  readonly onBan: (keyId: string, ban: Ban, isNew: boolean) => void;
  readonly onError: (error: unknown) => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Makes a function that bans a key, for as long as the ladder says. It works beside the requests, not on their path. */
export function banner({ store, rules, onBan, onError, now }: BannerOptions): (keyId: string) => void {
  const ban = async (keyId: string) => {
    const last = await store.lastBan(keyId);
    const next = nextBan(last, rules, now());
    if (next !== last) await store.ban(keyId, next);
    onBan(keyId, next, next !== last);
  };
  return (keyId) => void ban(keyId).catch(onError);
}
