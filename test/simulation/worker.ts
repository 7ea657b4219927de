/** Runs plans that its parent sends, each twice. Started with `--import ./test/simulation/substitutes.ts`. */
import type { Plan } from "./plan.ts";
import { type RunResult, run } from "./simulated-run.ts";

export interface PlanResult extends RunResult {
  readonly plan: Plan;
}

Error.stackTraceLimit = 0; // a stack costs more than its error, and `--trace` has it

/** A run and its repeat, which has to do exactly the same. */
async function runTwice(plan: Plan): Promise<PlanResult> {
  const result = await run(plan);
  const { hash } = await run(plan);
  if (hash === result.hash) return { ...result, plan };
  return { ...result, plan, violations: [`two runs differ: ${result.hash} and ${hash}`, ...result.violations] };
}

process.on("message", (plan: Plan) => void runTwice(plan).then((result) => process.send!(result)));
