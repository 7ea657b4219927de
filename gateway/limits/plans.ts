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

/** Makes a function that tells the windows of a caller; those of the plans are made once. */
export function windowsOf(plans: PlanTable): (principal: Pick<Principal, "plan" | "limits">) => readonly Window[] {
  const ofPlans = {
    free: quotaWindows(plans.free),
    pro: quotaWindows(plans.pro),
    business: quotaWindows(plans.business),
  };
  return ({ plan, limits }) => {
    if (limits) return quotaWindows(limits);
    if (plan === "enterprise") throw new Error("an enterprise account without limits of its own");
    return ofPlans[plan];
  };
}
