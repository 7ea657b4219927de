/** Runs plans on all cores. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import type { Plan } from "./plan.ts";
import type { PlanResult } from "./worker.ts";

/** What a process needs to run the product in virtual time. */
export const nodeFlags = [
  "--import",
  new URL("substitutes.ts", import.meta.url).href,
  "--disable-warning=ExperimentalWarning",
  "--min-semi-space-size=64", // most of what a run makes is garbage soon
  "--max-semi-space-size=64",
  "--no-turbofan", // so much code runs so seldom that it costs more than it gains
];

/** A process that runs one plan after the other. */
export class PlanWorker {
  readonly #child: ChildProcess = fork(new URL("worker.ts", import.meta.url), {
    execArgv: nodeFlags,
    serialization: "advanced",
  });

  /** @throws Error when the process ends instead */
  async run(plan: Plan): Promise<PlanResult> {
    const ended = new AbortController();
    const exit = once(this.#child, "exit", { signal: ended.signal }).then(([code]) => {
      throw new Error(`the process that runs seed ${plan.seed} has ended with ${code}`);
    });
    exit.catch(() => {});
    this.#child.send(plan);
    const [result] = await Promise.race([once(this.#child, "message"), exit]);
    ended.abort();
    return result as PlanResult;
  }

  end(): void {
    this.#child.kill();
  }
}

/** After so many plans another process takes over: modules keep something of each run, which makes the next slower. */
const plansOfWorker = 200;

/**
 * Runs plans on all cores, in order.
 *
 * @param onResult gets each result when it is there. @returns whether the others are to be run, too
 */
export async function runAll(plans: Iterable<Plan>, onResult: (result: PlanResult) => boolean): Promise<void> {
  const left = plans[Symbol.iterator]();
  let goesOn = true;
  const work = async () => {
    let worker = new PlanWorker();
    for (let next = left.next(), run = 1; goesOn && !next.done; next = left.next(), run++) {
      goesOn = onResult(await worker.run(next.value)) && goesOn;
      if (run % plansOfWorker === 0) {
        worker.end();
        worker = new PlanWorker();
      }
    }
    worker.end();
  };
  await Promise.all(Array.from({ length: availableParallelism() }, work));
}
