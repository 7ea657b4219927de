/** The processes of `npm start`. */
import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";

const root = join(import.meta.dirname, "../..");

export interface Tier {
  readonly child: ChildProcess;
  readonly listen: string;
  /** Resolves at its end, with how it has ended. */
  readonly exited: Promise<string>;
}

/** Starts one tier and resolves when it is ready to serve. @param flags of Node */
export function startTier(script: string, flags: readonly string[], env: NodeJS.ProcessEnv): Promise<Tier> {
  const child = spawn(process.execPath, [...flags, join(root, script)], {
    env,
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    // Ctrl-C reaches only this process, which then stops the tiers in the reverse order of their start.
    detached: true,
  });
  const exited = new Promise<string>((resolve) => {
    child.once("exit", (code, signal) => resolve(signal ? `ended by ${signal}` : `ended with code ${code}`));
  });
  return new Promise((resolve, reject) => {
    child.once("message", (message) => resolve({ child, exited, listen: (message as { listen: string }).listen }));
    void exited.then((how) => reject(new Error(`${script} ${how} before it was ready`)));
  });
}

export async function stopTier({ child, exited }: Tier): Promise<void> {
  child.kill("SIGTERM");
  await exited;
}

/** Ends without a drain. What was acknowledged is in the databases. */
export function endAtOnce(tiers: readonly Tier[]): void {
  for (const { child } of tiers) child.kill("SIGKILL");
  process.exit(130); // as a shell says of a program that SIGINT ended
}
