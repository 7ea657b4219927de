/** Bans lines of keys that keep sending requests after a 429. */
import type { Ban, KeyStore } from "../accounts/keys/key-store.ts";

export interface BanRules {
  /** Refusals within a minute that bring a ban. */
  readonly refusals: number;
  /** Minutes of the first, second, … ban; the last one repeats. */
  readonly ladderMinutes: readonly number[];
  /** Time without a ban after which the ladder starts again. */
  readonly forgetAfterMs: number;
}

/** The published ladder. */
export const publishedBanRules: BanRules = {
  refusals: 30,
  ladderMinutes: [5, 15, 60],
  forgetAfterMs: 24 * 60 * 60_000,
};

export interface BanHandlerOptions {
  readonly store: Pick<KeyStore, "lastBan" | "ban">;
  readonly rules: BanRules;
  /** Gets the ban of a line of keys; `isNew` is false for a ban that another replica has noted already. */
  readonly onBan: (lineId: string, ban: Ban, isNew: boolean) => void;
  readonly onError: (error: unknown) => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Makes a function that bans a line of keys for as long as the ladder says. It never rejects. */
export function createBanHandler({ store, rules, onBan, onError, now }: BanHandlerOptions) {
  const ban = async (lineId: string) => {
    const last = await store.lastBan(lineId);
    const next = nextBan(last, rules, now());
    if (next !== last) await store.ban(lineId, next);
    onBan(lineId, next, next !== last);
  };
  return (lineId: string): Promise<void> => ban(lineId).catch(onError);
}

/** The ban that follows the last one. A ban that is still running stays as it is, so that replicas agree on one. */
export function nextBan(last: Ban | undefined, rules: BanRules, nowMs: number): Ban {
  if (last && last.untilMs > nowMs) return last;
  const remembered = last !== undefined && nowMs - last.untilMs < rules.forgetAfterMs;
  const step = remembered ? last.step + 1 : 1;
  const minutes = rules.ladderMinutes[Math.min(step, rules.ladderMinutes.length) - 1]!;
  return { untilMs: nowMs + minutes * 60_000, step, atMs: nowMs };
}
