import { setTimeout as delay } from "node:timers/promises";
import { type Child, type ChildOptions, startChild } from "./children.ts";
import { connectMysql, createDatabaseOn, dropMysqlDatabase, withDatabase } from "./mysql-client.ts";
import { type PreparedServer, prepareMysqld } from "./mysqld.ts";
import { freePort } from "./ports.ts";
import { temporaryFolder } from "./stack.ts";

export interface DatabaseServer {
  /** Undefined for a server that was given, and while a private one is down. */
  readonly pid: number | undefined;
  readonly port: number;
  /** `mysql://user:password@host:port/name`, for an account that may do everything. */
  url(databaseName: string): string;
  /** @returns the URL of a new empty database with a name of its own, in utf8mb4 */
  createDatabase(): Promise<string>;
  /** Drops a database that the tests made. */
  dropDatabase(url: string): Promise<void>;
  /** Sends a signal. It resolves once the server is gone (SIGKILL) or stands still (SIGSTOP), else at once. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Starts the server again on the same data and port, after a regular stop where it still runs. */
  restart(): Promise<void>;
  /** Ends a private server and removes its data; leaves one that was given alone. */
  stop(): Promise<void>;
}

/** Long enough for crash recovery on a slow machine. */
const readyTimeoutMs = 60_000;
const stopTimeoutMs = 20_000;

/**
 * Opens a MySQL or MariaDB server for tests: the one of `TEST_MYSQL_URL`, or a private one when that is not set.
 * @throws Error that names the choices when there is none
 */
export async function startDatabaseServer(): Promise<DatabaseServer> {
  const given = process.env.TEST_MYSQL_URL;
  return given ? await useGivenServer(given) : await startPrivateDatabaseServer();
}

/**
 * Starts a private server that a test may kill and restart, even when `TEST_MYSQL_URL` is set.
 *
 * @param args besides those that every server of the tests has
 */
export async function startPrivateDatabaseServer(...args: string[]): Promise<DatabaseServer> {
  const folder = await temporaryFolder("mysql");
  const port = await freePort();
  let server: ServerProcess | undefined;
  const stop = async () => {
    await server?.stop();
    await folder.remove();
  };
  try {
    const prepared = await prepareMysqld(folder.path, port);
    const running = serverProcess(prepared, { name: "the database", cwd: folder.path, env: process.env });
    server = running;
    await running.start(...args);
    return {
      get pid() {
        return running.pid;
      },
      port,
      ...databasesOf(prepared.url),
      kill: running.kill,
      restart: async () => {
        await running.stop();
        await running.start(...args);
      },
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The process of a prepared server, which starts as often as a test wants. */
export interface ServerProcess {
  /** Undefined while it does not run. */
  readonly pid: number | undefined;
  /** Starts it with these arguments besides its own, and resolves once it takes connections. */
  start(...more: string[]): Promise<void>;
  /** Sends a signal. It resolves once the server is gone (SIGKILL) or stands still (SIGSTOP), else at once. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** Ends it regularly. */
  stop(): Promise<void>;
}

/** Takes a prepared server in hand, without starting it. */
export function serverProcess({ program, args, url }: PreparedServer, options: ChildOptions): ServerProcess {
  let child: Child | undefined;
  return {
    get pid() {
      return child?.pid;
    },
    start: async (...more) => {
      const started = startChild(program, [...args, ...more], options);
      child = started;
      void started.exited.then(() => {
        if (child === started) child = undefined;
      });
      try {
        await waitUntilReady(started, url, options.name);
      } catch (error) {
        await started.kill("SIGKILL");
        throw error;
      }
    },
    kill: async (signal) => await child?.kill(signal),
    stop: async () => void (await child?.stop(stopTimeoutMs)),
  };
}

async function useGivenServer(serverUrl: string): Promise<DatabaseServer> {
  const connection = await connectMysql(withDatabase(serverUrl, "")).catch((error) => {
    throw new Error("TEST_MYSQL_URL names a server that cannot be used", { cause: error });
  });
  await connection.end();
  const refuse = async () => {
    throw new Error("The server of TEST_MYSQL_URL is not ours to stop: use startPrivateDatabaseServer()");
  };
  return {
    pid: undefined,
    port: Number(new URL(serverUrl).port || 3306),
    ...databasesOf(serverUrl),
    kill: refuse,
    restart: refuse,
    stop: async () => {},
  };
}

function databasesOf(serverUrl: string): Pick<DatabaseServer, "url" | "createDatabase" | "dropDatabase"> {
  return {
    url: (databaseName) => withDatabase(serverUrl, databaseName),
    createDatabase: () => createDatabaseOn(serverUrl),
    dropDatabase: dropMysqlDatabase,
  };
}

async function waitUntilReady(child: Child, url: string, name: string): Promise<void> {
  let ended = false;
  void child.exited.then(() => {
    ended = true;
  });
  const deadline = Date.now() + readyTimeoutMs;
  for (;;) {
    try {
      const connection = await connectMysql(url);
      await connection.end();
      return;
    } catch (error) {
      if (ended || Date.now() > deadline) {
        throw new Error(`${name} did not start. Its output:\n${child.output()}`, { cause: error });
      }
      await delay(25);
    }
  }
}
