/** Prints what happens in the run of a plan. */
import type { Plan } from "./plan.ts";
import { run } from "./simulated-run.ts";

const plan: Plan = JSON.parse(process.argv[2]!);
console.log(JSON.stringify(plan, undefined, 1));
const { violations, hash, virtualMs, requests, events } = await run(plan, (line) => console.log(line.slice(0, 400)));
console.log({ hash, virtualMs, requests, events });
console.log(violations.join("\n"));
process.exitCode = violations.length > 0 ? 1 : 0;
