import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/**
 * Runs a command of npm for the project in a folder, with what its cache has before it asks the registry.
 * @throws Error with its output, when it fails
 */
export async function npm(folder: string, ...args: string[]): Promise<void> {
  // What the npm that runs these tests says of itself to its scripts is not about the project in that folder.
  const names = Object.keys(process.env).filter(
    (name) => !/^npm_(config_(local_|global_)?prefix|package|lifecycle)/.test(name),
  );
  const env = Object.fromEntries(names.map((name) => [name, process.env[name]]));
  const quick = ["--prefer-offline", "--no-audit", "--no-fund", "--no-update-notifier"];
  await run("npm", ["--prefix", folder, ...quick, ...args], { cwd: folder, env, maxBuffer: 64 * 1024 * 1024 });
}
