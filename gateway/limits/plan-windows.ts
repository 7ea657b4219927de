/** The windows of each caller, by its plan. */
import { LRUCache } from "lru-cache";
import type { AccountLimits, PlanTable } from "../auth/plans.ts";
import type { Principal } from "../auth/principal.ts";
import type { Window } from "./windows.ts";

export function quotaWindows({ perMinute, perDay }: AccountLimits): readonly Window[] {
  return [
    { name: "minute", seconds: 60, limit: perMinute },
    { name: "day", seconds: 86_400, limit: perDay },
  ];
}

/** Sets of windows that are kept; accounts of some plans have limits of their own. */
const maxQuotas = 10_000;

/** Makes a function that gives the windows of a caller, the same array for the same limits. */
export function windowsFor(plans: PlanTable): (principal: Pick<Principal, "plan" | "limits">) => readonly Window[] {
  const byLimits = new LRUCache<string, readonly Window[]>({ max: maxQuotas });
  const byPrincipal = new WeakMap<object, readonly Window[]>(); // a principal serves many requests
  const find = ({ plan, limits }: Pick<Principal, "plan" | "limits">) => {
    const found = limits ?? plans[plan];
    if (found === null) throw new Error(`an account on the plan ${plan} without limits of its own`);
    const name = `${found.perMinute}/${found.perDay}`;
    const windows = byLimits.get(name) ?? quotaWindows(found);
    byLimits.set(name, windows);
    return windows;
  };
  return (principal) => {
    let windows = byPrincipal.get(principal);
    if (windows === undefined) {
      windows = find(principal);
      byPrincipal.set(principal, windows);
    }
    return windows;
  };
}
