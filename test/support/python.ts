/** Python with libraries of PyPI, for the programs that callers write in it. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { rename } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { findProgram } from "./server-programs.ts";

const run = promisify(execFile);

/** Undefined where it is missing: tests that need it are skipped there. */
export const python = findProgram(["python3"]);

/**
 * Makes an environment with these packages, as `name==version`. It is kept for later runs, because they are large.
 *
 * @returns the folder of its programs
 */
export async function pythonWith(...packages: readonly string[]): Promise<string> {
  const kept = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "petstore-tests", packages.join("+"));
  if (!existsSync(kept)) {
    const making = `${kept}-${process.pid}`;
    await run(python!, ["-m", "venv", "--copies", making]);
    await run(join(making, "bin/python"), ["-m", "pip", "install", "--quiet", ...packages], { maxBuffer: 1e8 });
    await rename(making, kept);
  }
  return join(kept, "bin");
}
