/** Bans families of keys that keep sending requests after a 429. */
import type { Ban, KeyStore } from "../accounts/keys/key-store.ts";

export interface BanRules {
  /** Strikes within a minute that bring a ban. */
  readonly maxStrikes: number;
  /** Minutes of the first, second, … ban; the last one repeats. */
  readonly ladderMinutes: readonly number[];
  /** Time without a ban after which the ladder starts again. */
  readonly forgetAfterMs: number;
}

/** The published ladder. */
export const publishedBanRules: BanRules = {
  maxStrikes: 30,
  ladderMinutes: [5, 15, 60],
  forgetAfterMs: 24 * 60 * 60_000,
};

export interface BanHandlerOptions {
  readonly store: Pick<KeyStore, "lastBan" | "ban">;
  readonly rules: BanRules;
  /** Gets the ban of a family of keys; `isNew` is false for a ban that another gateway has noted already. */
  readonly onBan: (familyId: string, ban: Ban, isNew: boolean) => void;
  readonly onError: (error: unknown) => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Makes a function that bans a family of keys for as long as the ladder says. It never rejects. */
export function createBanHandler({ store, rules, onBan, onError, now }: BanHandlerOptions) {
  const ban = async (familyId: string) => {
    const last = await store.lastBan(familyId);
    const next = nextBan(last, rules, now());
    if (next !== last) await store.ban(familyId, next);
    onBan(familyId, next, next !== last);
  };
  return (familyId: string): Promise<void> => ban(familyId).catch(onError);
}

/** The ban that follows the last one. A ban that is still running stays as it is, so that gateways agree on one. */
export function nextBan(last: Ban | undefined, rules: BanRules, nowMs: number): Ban {
  if (last && last.untilMs > nowMs) return last;
  const remembered = last !== undefined && nowMs - last.untilMs < rules.forgetAfterMs;
  const step = remembered ? last.step + 1 : 1;
  const minutes = rules.ladderMinutes[Math.min(step, rules.ladderMinutes.length) - 1]!;
  return { untilMs: nowMs + minutes * 60_000, step, atMs: nowMs };
}
