/** Makes a plan that fails smaller, as long as it fails. */
import type { Plan } from "./plan.ts";

/** Runs of one shrinking: it takes half a minute. */
const maxRuns = 60;

/** @param fails runs a plan */
export async function shrink(plan: Plan, fails: (plan: Plan) => Promise<boolean>): Promise<Plan> {
  let smallest = plan;
  let runs = 0;
  const attempt = async (change: Partial<Plan>) => {
    if (runs >= maxRuns) return false;
    runs += 1;
    const smaller = { ...smallest, ...change };
    if (!(await fails(smaller))) return false;
    smallest = smaller;
    return true;
  };
  // By halves at first, and one by one at last.
  for (let size = Math.ceil(plan.faults.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let from = 0; from < smallest.faults.length; ) {
      const faults = smallest.faults.toSpliced(from, size);
      if (!(await attempt({ faults }))) from += size;
    }
  }
  while (smallest.callers > 1 && (await attempt({ callers: smallest.callers - 1 })));
  while (smallest.services > 1 && (await attempt({ services: smallest.services - 1 })));
  while (smallest.gateways > 1 && (await attempt({ gateways: smallest.gateways - 1 })));
  while (smallest.endMs > 1_000 && (await attempt({ endMs: Math.round(smallest.endMs * 0.7) })));
  return smallest;
}
