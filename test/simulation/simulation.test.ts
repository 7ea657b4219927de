import { execFile } from "node:child_process";
import { promisify } from "node:util";

/** In minutes: others may use the cores, too. */
const timeoutMs = 5 * 60_000;

test(
  "a hundred seeds of faults in virtual time break no promise, and each run can be repeated",
  async () => {
    const args = ["test/simulation/simulate.ts", "--seeds", "100"];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    expect(stdout).toContain("failed: none");
  },
  timeoutMs,
);
