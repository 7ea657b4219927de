import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** Runs a program that uses all cores, behind the other tests: those go by the clock. */
const node = (...args: readonly string[]) => promisify(execFile)("nice", ["-n", "10", process.execPath, ...args]);

/** In minutes: others may use the cores, too. */
const timeoutMs = 10 * 60_000;

test(
  "two hundred seeds of faults in virtual time break no promise, and each run can be repeated",
  async () => {
    const { stdout } = await node("test/simulation/simulate.ts", "--seeds", "200");
    expect(stdout).toContain("failed: none");
  },
  timeoutMs,
);

test(
  "the simulation finds two faults that are planted in the sources",
  async () => {
    for (const fault of ["joins the check", "a removed entry"]) {
      const { stdout } = await node("test/simulation/planted.ts", "--only", fault);
      expect(stdout).toMatch(/^ +found by seed \d+/m);
    }
  },
  timeoutMs,
);
