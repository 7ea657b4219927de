import { execFile } from "node:child_process";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type Child, startChild } from "./children.ts";
import { temporaryFolder } from "./stack.ts";

const projectRoot = resolve(import.meta.dirname, "../..");

/** Where a script is. Beside a later version (`test/versions`) a tier may be of that one. */
function pathOf(script: string): string {
  const { LATER_VERSION: later, LATER_TIERS: tiers = "" } = process.env;
  const isLater = later !== undefined && tiers.split(",").some((tier) => script.startsWith(`${tier}/`));
  return resolve(isLater ? later : projectRoot, script);
}

export interface ScriptOptions {
  /** Relative to the project's root, as in `inventory-svc/main.ts`. */
  readonly script: string;
  readonly args?: readonly string[];
  /** All of its environment except PATH and HOME. */
  readonly env?: Record<string, string>;
  /** Default: a new temporary folder that goes with the process, so that no `.env` or `.data` is found or left. */
  readonly cwd?: string;
}

export interface ProcessOptions extends ScriptOptions {
  /** What error messages call it. */
  readonly name: string;
}

/** A process of the system that is serving. */
export interface RunningProcess {
  readonly pid: number;
  /** Addresses as bound, `host:port`, which differ from the settings where those asked for port 0. */
  readonly listen: string;
  readonly admin: string;
  /** The exit code; null when a signal ended it. Never rejects. */
  readonly exited: Promise<number | null>;
  /** Standard output and standard error; the last 5,000 lines. */
  output(): string;
  /** Sends a signal. It resolves once the process is gone (SIGKILL) or stands still (SIGSTOP), else at once. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Sends SIGTERM, and SIGKILL 20 s later, which is after the default drain. Resolves to the exit code. */
  stop(): Promise<number | null>;
}

const readyTimeoutMs = 30_000;
const stopTimeoutMs = 20_000;
const running = new Set<Child>();

/**
 * Starts a process of the system and waits until it serves, which it reports by a log line
 * `{"msg":"ready","listen":"host:port","admin":"host:port"}`.
 * @throws Error with its output, when it ends before that
 */
export async function startProcess({ name, ...options }: ProcessOptions): Promise<RunningProcess> {
  const child = await startScript({ name, ...options });
  try {
    const { listen, admin } = await child.waitForLine(readReadyLine, readyTimeoutMs);
    const { pid, exited, output, kill } = child;
    return { pid, listen, admin, exited, output, kill, stop: () => child.stop(stopTimeoutMs) };
  } catch (error) {
    await child.kill("SIGKILL");
    throw error;
  }
}

/** Starts any script of the project as a child. `Child.waitForLine` can wait for its own sign of readiness. */
export async function startScript({ name, script, args = [], env = {}, cwd }: ProcessOptions): Promise<Child> {
  const folder = cwd === undefined ? await temporaryFolder("cwd") : undefined;
  const child = startChild(process.execPath, [pathOf(script), ...args], {
    name,
    cwd: cwd ?? (folder?.path as string),
    env: cleanEnvironment(env),
  });
  running.add(child);
  void child.exited.then(async () => {
    running.delete(child);
    // Where its own children still write, the folder goes with the folder of the run.
    await folder?.remove().catch(() => {});
  });
  return child;
}

export interface ScriptResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command of the project to its end, such as `gateway/accounts/cli/keys.ts`. No exit code makes it reject. */
export async function runScript({ script, args = [], env = {}, cwd }: ScriptOptions): Promise<ScriptResult> {
  const folder = cwd === undefined ? await temporaryFolder("cwd") : undefined;
  const options = {
    cwd: cwd ?? folder?.path,
    env: cleanEnvironment(env),
    timeout: 60_000,
    maxBuffer: 64 * 1024 * 1024,
  };
  try {
    return await new Promise((done, fail) => {
      execFile(process.execPath, [pathOf(script), ...args], options, (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        if (typeof code === "number") done({ code, stdout, stderr });
        else fail(new Error(`${script} ended by ${error?.signal ?? code}:\n${stdout}${stderr}`, { cause: error }));
      });
    });
  } finally {
    await folder?.remove();
  }
}

/** Kills every process of this suite that still runs. */
export async function cleanup(): Promise<void> {
  await Promise.all([...running].map((child) => child.kill("SIGKILL")));
}

/**
 * Returns an environment without the settings of the user that runs the tests. A stop does not wait for a load balancer
 * unless a test sets the delay. The processes of a run share what V8 has compiled, because it is half of what it costs
 * to start one.
 */
function cleanEnvironment(env: Record<string, string>): NodeJS.ProcessEnv {
  return {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    NODE_COMPILE_CACHE: join(tmpdir(), "compiled"),
    DRAIN_DELAY_SECONDS: "0",
    ...env,
  };
}

function readReadyLine(line: string): { listen: string; admin: string } | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    const { msg, listen, admin } = JSON.parse(line);
    return msg === "ready" ? { listen, admin } : undefined;
  } catch {
    return undefined; // a line that only looks like JSON
  }
}
