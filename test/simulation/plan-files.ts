/** Plans in files: what has failed once is run first from then on. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plan } from "./plan.ts";

/** Plans that have failed. Those that found a fault of the product stay for good. */
export const failedFolder = ".data/simulation";
const keptFolder = "test/simulation/kept";

/** The plans to run before all others. */
export function keptPlans(): Plan[] {
  return [keptFolder, failedFolder].flatMap((folder) => filesIn(folder).map((name) => readPlan(join(folder, name))));
}

export function filesIn(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return []; // nothing has failed so far
  }
}

export function readPlan(path: string): Plan {
  return JSON.parse(readFileSync(path, "utf8"));
}
