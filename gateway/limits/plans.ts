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
