import { type Child, startChild } from "./children.ts";
import { freePort } from "./ports.ts";
import { serverProgram } from "./server-programs.ts";
import { temporaryFolder } from "./stack.ts";

export interface RedisServer {
  readonly url: string;
  readonly port: number;
  /** Undefined while it is down. */
  readonly pid: number | undefined;
  /** Sends a signal. It resolves once the server is gone (SIGKILL) or stands still (SIGSTOP), else at once. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Starts it again on the same port, without its data, after a regular stop where it still runs. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface RedisServerOptions {
  /** Default: a free one. */
  readonly port?: number;
  /** Arguments after the usual ones, which they may replace. */
  readonly args?: readonly string[];
  /** Makes the arguments in place of the usual ones. */
  readonly argsIn?: (folder: string, port: number) => Promise<readonly string[]>;
  /** What it prints when it is ready. */
  readonly readyText?: string;
}

const readyTimeoutMs = 20_000;
const stopTimeoutMs = 10_000;

/** Starts a private Redis or Valkey server that keeps everything in memory. It starts fast enough for one per suite. */
export async function startRedisServer(options: RedisServerOptions = {}): Promise<RedisServer> {
  const { args: more = [], argsIn, readyText = "Ready to accept connections" } = options;
  const program = await serverProgram("redis");
  const folder = await temporaryFolder("redis");
  const port = options.port ?? (await freePort());
  const usual = ["--bind", "127.0.0.1", "--port", `${port}`, "--dir", folder.path, "--save", "", "--appendonly", "no"];
  const args = argsIn ? await argsIn(folder.path, port) : [...usual, ...more];
  let child: Child | undefined;
  const start = async () => {
    const started = startChild(program, args, { name: "Redis", cwd: folder.path, env: process.env });
    child = started;
    void started.exited.then(() => {
      if (child === started) child = undefined;
    });
    await started.waitForLine((line) => line.includes(readyText) || undefined, readyTimeoutMs);
  };
  const stop = async () => {
    await child?.stop(stopTimeoutMs);
    await folder.remove();
  };
  try {
    await start();
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    get pid() {
      return child?.pid;
    },
    kill: async (signal) => await child?.kill(signal),
    restart: async () => {
      await child?.stop(stopTimeoutMs);
      await start();
    },
    stop,
  };
}
