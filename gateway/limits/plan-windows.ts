/** The windows of each caller, by its plan. */
import type { AccountLimits, PlanTable } from "../accounts/keys/plans.ts";
import type { Principal } from "../accounts/keys/principal.ts";
import type { Window } from "./windows.ts";

export function quotaWindows({ perMinute, perDay }: AccountLimits): readonly Window[] {
  return [
    { name: "minute", seconds: 60, limit: perMinute },
    { name: "day", seconds: 86_400, limit: perDay },
  ];
}

/** Makes a function that gives the windows of a caller, the same array each time for the same limits object. */
export function windowsFor(plans: PlanTable): (principal: Pick<Principal, "plan" | "limits">) => readonly Window[] {
  const byLimits = new WeakMap<AccountLimits, readonly Window[]>(); // limits serve many requests
  return ({ plan, limits }) => {
    const found = limits ?? plans[plan];
    if (found === null) throw new Error(`an account on the plan ${plan} without limits of its own`);
    let windows = byLimits.get(found);
    if (windows === undefined) {
      windows = quotaWindows(found);
      byLimits.set(found, windows);
    }
    return windows;
  };
}
