import { LRUCache } from "lru-cache";
import type { AccountLimits, PlanName, Principal } from "../auth/principal.ts";
import type { Window } from "./windows.ts";

/** Limits of the plans that have them in common; enterprise accounts have their own. */
export type PlanTable = Readonly<Record<Exclude<PlanName, "enterprise">, AccountLimits>>;

/** The contract's table (section Limits). */
export const contractPlans: PlanTable = {
  free: { perMinute: 60, perDay: 1_000 },
  pro: { perMinute: 300, perDay: 10_000 },
  business: { perMinute: 1_000, perDay: 100_000 },
};

/**
 * Reads a table of plans as people write it: `free=60/1000,pro=300/10000`, requests per minute / per day.
 *
 * @param base what holds for plans that the text does not name
 * @returns undefined when the text is no such table
 */
export function parsePlans(text: string, base: PlanTable): PlanTable | undefined {
  const plans: Record<string, AccountLimits> = { ...base };
  for (const entry of text.split(",")) {
    const match = /^(free|pro|business)=([1-9]\d{0,9})\/([1-9]\d{0,9})$/.exec(entry.trim());
    if (!match) return undefined;
    plans[match[1]!] = { perMinute: Number(match[2]), perDay: Number(match[3]) };
  }
  return plans as unknown as PlanTable;
}

export function quotaWindows({ perMinute, perDay }: AccountLimits): readonly Window[] {
  return [
    { name: "minute", seconds: 60, limit: perMinute },
    { name: "day", seconds: 86_400, limit: perDay },
  ];
}

/** Sets of windows that are kept ready; each enterprise account may have limits of its own. */
const maxQuotas = 10_000;

/** Makes a function that tells the windows of a caller: the same array for the same limits. */
export function windowsOf(plans: PlanTable): (principal: Pick<Principal, "plan" | "limits">) => readonly Window[] {
  const ready = new LRUCache<string, readonly Window[]>({ max: maxQuotas });
  const ofLimits = (limits: AccountLimits) => {
    const name = `${limits.perMinute}/${limits.perDay}`;
    let windows = ready.get(name);
    if (windows === undefined) {
      windows = quotaWindows(limits);
      ready.set(name, windows);
    }
    return windows;
  };
  return ({ plan, limits }) => {
    if (limits) return ofLimits(limits);
    if (plan === "enterprise") throw new Error("an enterprise account without limits of its own");
    return ofLimits(plans[plan]);
  };
}
