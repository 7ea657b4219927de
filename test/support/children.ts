import { type ChildProcessByStdio, execFileSync, spawn } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import type { Readable } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import { setTimeout as delay } from "node:timers/promises";
import { atExit } from "./stack.ts";
import { until } from "./until.ts";

export interface ChildOptions {
  /** What error messages call it. */
  readonly name: string;
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
}

/** A running child process and what it printed. */
export interface Child {
  readonly pid: number;
  /** The exit code, once its output is complete; null when a signal ended it. Never rejects. */
  readonly exited: Promise<number | null>;
  /** Standard output and standard error in the order of arrival; the last 5,000 lines. */
  output(): string;
  /**
   * Resolves to the first result of `read` other than undefined, over the lines printed so far and later.
   * Rejects with the output when the child ends or the time is up.
   */
  waitForLine<T>(read: (line: string) => T | undefined, timeoutMs: number): Promise<T>;
  /** Sends a signal. It resolves once the child is gone (SIGKILL) or stands still (SIGSTOP), else at once. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Sends SIGTERM, also to a suspended child, and SIGKILL after `timeoutMs`. Resolves to the exit code. */
  stop(timeoutMs: number): Promise<number | null>;
}

const maxLines = 5_000;

/** Starts a program that does not outlive this process, however this process ends. Call it on the main thread. */
export function startChild(command: string, args: readonly string[], { name, cwd, env }: ChildOptions): Child {
  const [program, ...rest] = [...parentDeathPrefix(), command, ...args] as [string, ...string[]];
  const child = spawn(program, rest, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  child.on("error", () => {}); // a program that cannot be started shows as one without a pid
  const { pid } = child;
  if (pid === undefined) throw new Error(`${name}: cannot start ${program}`);

  const lines: string[] = [];
  const readers = new Set<(line: string) => void>();
  const addLine = (line: string) => {
    lines.push(line);
    if (lines.length > maxLines) lines.shift();
    for (const read of readers) read(line);
  };
  const exited = exitOf(child, addLine);
  const forget = atExit(() => child.kill("SIGKILL"));
  void exited.then(forget);

  return {
    pid,
    exited,
    output: () => lines.join("\n"),
    waitForLine: (read, timeoutMs) =>
      new Promise((resolve, reject) => {
        const end = (settle: () => void) => {
          clearTimeout(timer);
          readers.delete(tryLine);
          settle();
        };
        const fail = (what: string) =>
          end(() => reject(new Error(`${name} ${what}. Its output:\n${lines.join("\n")}`)));
        const tryLine = (line: string) => {
          const result = read(line);
          if (result !== undefined) end(() => resolve(result));
        };
        const timer = setTimeout(() => fail(`was not ready in ${timeoutMs} ms`), timeoutMs);
        readers.add(tryLine);
        for (const line of [...lines]) tryLine(line);
        void exited.then((code) => fail(`ended before it was ready, with ${code ?? child.signalCode}`));
      }),
    kill: async (signal) => {
      child.kill(signal);
      if (signal === "SIGKILL") await exited;
      if (signal === "SIGSTOP") await until(() => standsStill(child.pid!));
    },
    stop: async (timeoutMs) => {
      child.kill("SIGTERM");
      child.kill("SIGCONT");
      const timer = setTimeout(() => child.kill("SIGKILL"), timeoutMs);
      const code = await exited;
      clearTimeout(timer);
      return code;
    },
  };
}

/** Whether all threads of a process have stopped. Outside Linux it is taken for granted. */
async function standsStill(pid: number): Promise<boolean> {
  const threads = await readdir(`/proc/${pid}/task`).catch(() => []);
  const states = threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/stat`, "utf8").catch(() => ") T"));
  return (await Promise.all(states)).every((stat) => /\) [Tt]/.test(stat));
}

async function exitOf(child: ChildProcessByStdio<null, Readable, Readable>, addLine: (line: string) => void) {
  const complete = Promise.all([readLines(child.stdout, addLine), readLines(child.stderr, addLine)]);
  const code = await new Promise<number | null>((resolve) => child.once("exit", resolve));
  // Its own children may hold the pipes open after it has ended.
  await Promise.race([complete, delay(500, undefined, { ref: false })]);
  return code;
}

function readLines(stream: Readable, addLine: (line: string) => void): Promise<void> {
  const decoder = new StringDecoder("utf8");
  let rest = "";
  stream.on("data", (chunk: Buffer) => {
    const parts = (rest + decoder.write(chunk)).split("\n");
    rest = parts.pop() ?? "";
    for (const line of parts) addLine(line);
  });
  return new Promise((resolve) => {
    stream.once("close", () => {
      if (rest !== "") addLine(rest);
      resolve();
    });
  });
}

let prefix: string[] | undefined;

/**
 * On Linux the kernel ends the child together with the thread that started it, even when that is killed with SIGKILL.
 * `setpriv` is in Debian's util-linux. Without it, only a regular exit of this process ends the children.
 */
function parentDeathPrefix(): string[] {
  if (prefix !== undefined) return prefix;
  const candidate = ["setpriv", "--pdeathsig", "KILL", "--"];
  try {
    execFileSync("setpriv", [...candidate.slice(1), "true"], { stdio: "ignore" });
    prefix = candidate;
  } catch {
    prefix = [];
  }
  return prefix;
}
