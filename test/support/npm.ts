import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Runs an npm command for the project in a folder. npm uses its cache before it asks the registry.
 * @throws Error with its output, when it fails
 */
export async function npm(folder: string, ...args: string[]): Promise<void> {
  // The npm that runs these tests sets variables for its own project, which must not reach the other one.
  const names = Object.keys(process.env).filter(
    (name) => !/^npm_(config_(local_|global_)?prefix|package|lifecycle)/.test(name),
  );
  const env = Object.fromEntries(names.map((name) => [name, process.env[name]]));
  const quick = ["--prefer-offline", "--no-audit", "--no-fund", "--no-update-notifier"];
  await run("npm", ["--prefix", folder, ...quick, ...args], { cwd: folder, env, maxBuffer: 64 * 1024 * 1024 });
}
