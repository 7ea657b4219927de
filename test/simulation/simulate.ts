/** Simulates the system under faults, one run for each seed: `npm run simulate -- --seeds 1000`. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { count, createTool } from "../support/tools.ts";
import { judgeEvents } from "./events.ts";
import { type Plan, planOf } from "./plan.ts";
import { failedFolder, filesIn, keptPlans, readPlan } from "./plan-files.ts";
import { shrink } from "./shrink.ts";
import type { PlanResult } from "./worker.ts";
import { nodeFlags, PlanWorker, runAll } from "./workers.ts";

const tool = createTool("simulate", "Simulates the system under faults in virtual time, one run for each seed.")
  .option("--seeds <count>", "runs", count, 100)
  .option("--seed <seed>", "the first seed", count, 1)
  .option("--trace [plan]", "prints what happens in one run: of a seed, or of a plan in a file")
  .option("--until-failure", "ends at the first seed that fails, and keeps no plan");
tool.parse();
const options = tool.opts<{ seeds: number; seed: number; trace?: true | string; untilFailure?: true }>();

if (options.trace) await trace(options.trace === true ? planOf(options.seed) : readPlan(options.trace));
else await simulateAll();

async function trace(plan: Plan): Promise<void> {
  const child = fork(new URL("trace.ts", import.meta.url), [JSON.stringify(plan)], { execArgv: nodeFlags });
  [process.exitCode] = await once(child, "exit");
}

async function simulateAll(): Promise<void> {
  const startedMs = performance.now();
  const results: PlanResult[] = [];
  const failed: PlanResult[] = [];
  const report = () => console.log(summary(results, failed, (performance.now() - startedMs) / 1_000));
  let reportedMs = startedMs;
  await runAll(plansToRun(), (result) => {
    results.push(result);
    if (result.violations.length > 0) failed.push(result);
    if (performance.now() - reportedMs > 10_000) {
      reportedMs = performance.now();
      report();
    }
    return !options.untilFailure || failed.length === 0;
  });
  report();
  if (!options.untilFailure) showEvents(results);
  for (const { plan, violations } of failed.slice(0, 10)) {
    console.log(`\nseed ${plan.seed}:\n  ${violations.slice(0, 5).join("\n  ")}`);
  }
  if (options.untilFailure) process.exitCode = failed.length > 0 ? 1 : 0;
  else await keep(failed);
}

/** A run that never meets an event proves nothing about it. */
function showEvents(results: readonly PlanResult[]): void {
  const { met, seldom } = judgeEvents(results);
  const show = (events: readonly (readonly [string, number])[]) =>
    events.map(([name, count]) => `${name} (${count})`).join(", ");
  console.log(`met least: ${show(Object.entries(met).slice(0, 8))}`);
  if (Object.keys(seldom).length === 0) return;
  console.log(`met too seldom: ${show(Object.entries(seldom))}`);
  if (results.length >= 1_000) process.exitCode = 1;
}

function* plansToRun(): Generator<Plan> {
  if (!options.untilFailure) yield* keptPlans();
  for (let seed = options.seed; seed < options.seed + options.seeds; seed++) yield planOf(seed);
}

/** Keeps the plans that have failed, the first one as small as it can be made, and forgets those that pass again. */
async function keep(failed: readonly PlanResult[]): Promise<void> {
  for (const name of filesIn(failedFolder)) rmSync(join(failedFolder, name));
  const [first] = failed;
  if (!first) return;
  process.exitCode = 1;
  mkdirSync(failedFolder, { recursive: true });
  const write = ({ seed }: Plan, plan: Plan) =>
    writeFileSync(join(failedFolder, `${seed}.json`), `${JSON.stringify(plan, undefined, 2)}\n`);
  for (const { plan } of failed) write(plan, plan);
  const worker = new PlanWorker();
  const small = await shrink(first.plan, async (plan) => (await worker.run(plan)).violations.length > 0);
  const { violations } = await worker.run(small);
  worker.end();
  write(small, small);
  console.log(`\nseed ${small.seed}, made smaller: ${JSON.stringify(small)}\n  ${violations.slice(0, 5).join("\n  ")}`);
  console.log(`\nWhat happens: npm run simulate -- --trace ${failedFolder}/${small.seed}.json`);
}

function summary(results: readonly PlanResult[], failed: readonly PlanResult[], seconds: number): string {
  const virtualSeconds = results.reduce((sum, { virtualMs }) => sum + 2 * virtualMs, 0) / 1_000;
  const requests = results.reduce((sum, result) => sum + result.requests, 0);
  const speed = (virtualSeconds / seconds).toFixed(0);
  const seeds = failed.map(({ plan }) => plan.seed).join(" ") || "none";
  return `${results.length} seeds, ${requests} requests in ${seconds.toFixed(0)} s, ${speed} times real time; failed: ${seeds}`;
}
