import { type Child, startChild } from "./children.ts";
import { temporaryFolder } from "./cleanup.ts";
import { freePort } from "./ports.ts";
import { serverProgram } from "./server-programs.ts";

export interface RedisServer {
  readonly url: string;
  readonly port: number;
  /** Undefined while it is down. */
  readonly pid: number | undefined;
  /** Sends a signal: SIGSTOP makes it hang, SIGCONT go on. With SIGKILL it resolves once it is gone, else at once. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Starts it again on the same port, after a regular stop where it still runs. It keeps nothing. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

const readyTimeoutMs = 20_000;
const stopTimeoutMs = 10_000;

/** A private Redis or Valkey server that keeps everything in memory. It is ready in about 50 ms: start one per suite. */
export async function startRedisServer(): Promise<RedisServer> {
  const program = await serverProgram("redis");
  const folder = await temporaryFolder("redis");
  const port = await freePort();
  const args = ["--bind", "127.0.0.1", "--port", `${port}`, "--dir", folder.path, "--save", "", "--appendonly", "no"];
  let child: Child | undefined;
  const start = async () => {
    child = startChild(program, args, { name: "Redis", cwd: folder.path, env: process.env });
    void child.exited.then(() => {
      child = undefined;
    });
    await child.waitForLine((line) => line.includes("Ready to accept connections") || undefined, readyTimeoutMs);
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
