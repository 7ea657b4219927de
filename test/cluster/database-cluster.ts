/** Servers of a database cluster, which tests kill, freeze and start again. */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { serverProcess } from "../support/database-server.ts";
import { connectMysql, withDatabase } from "../support/mysql-client.ts";
import type { PreparedServer } from "../support/mysqld.ts";
import { freePort } from "../support/ports.ts";
import type { Host } from "./network.ts";

/** Servers that keep the same databases. */
export interface DatabaseCluster {
  readonly nodes: readonly ClusterNode[];
  /** Asks a node for its role, as a health check does. Rejects where it gives no answer. */
  roleOf(node: ClusterNode): Promise<Role>;
  /** Makes a node the one that takes the writes. */
  switchTo(node: ClusterNode): Promise<void>;
  /** Waits until a node is part of the cluster again after `kill()` or `thaw()`. The other nodes must run. */
  rejoin(node: ClusterNode): Promise<void>;
}

/**
 * Writes belong to the writer. A standby may have been the writer before, and still answers what was begun there. A
 * node that is out answers nothing that counts.
 */
export type Role = "writer" | "standby" | "out";

export interface ClusterNode {
  /** As in `node 1`. */
  readonly name: string;
  /** `mysql://user:password@host:port/name`, for an account that may do everything. */
  url(databaseName: string): string;
  /** Runs a statement on a connection of its own. Rejects without an answer within two seconds, or as given. */
  query<Row>(sql: string, withinMs?: number): Promise<Row[]>;
  /** Ends it with SIGKILL. */
  kill(): Promise<void>;
  /** Suspends it, so that it answers nothing and its connections stay open. */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
}

/** A node for the code that makes a cluster of it. */
export interface ClusterServer extends ClusterNode {
  readonly port: number;
  readonly program: string;
  readonly args: readonly string[];
  readonly isRunning: boolean;
  start(...more: string[]): Promise<void>;
  /** Takes the data that it had before its first start. Call it while it does not run. */
  resetData(): Promise<void>;
}

export interface ServerOptions {
  /** A server that does not run. All get a copy of its data and accounts. */
  readonly original: PreparedServer;
  /** Where each gets a folder. */
  readonly folder: string;
  /** Arguments of each, besides those of every private server. */
  readonly args: readonly (readonly string[])[];
  readonly env?: NodeJS.ProcessEnv;
  /** Where each of them runs; by default all on this machine. */
  readonly hosts?: readonly Host[];
}

/** A wait for other nodes, on a slow machine. */
export const patientMs = 90_000;

/** Makes servers for a cluster, one for each list of arguments. None of them runs yet. */
export async function makeServers(
  stack: AsyncDisposableStack,
  { original, folder, args, env = process.env, hosts = [] }: ServerOptions,
): Promise<ClusterServer[]> {
  const servers: ClusterServer[] = [];
  for (const [i, own] of args.entries()) {
    const name = `node ${i + 1}`;
    const place = join(folder, `node-${i + 1}`);
    const port = await freePort();
    const prepared = await original.copyTo(place, port);
    const server = runOn(hosts[i], { ...prepared, args: [...prepared.args, ...own] });
    const process = serverProcess(server, { name, cwd: place, env });
    stack.defer(() => process.kill("SIGKILL"));
    servers.push({
      name,
      port,
      program: server.program,
      args: server.args,
      get isRunning() {
        return process.pid !== undefined;
      },
      url: (databaseName) => withDatabase(server.url, databaseName),
      query: (sql, withinMs) => query(server.url, sql, withinMs),
      start: process.start,
      resetData: async () => {
        await rm(place, { recursive: true });
        await original.copyTo(place, port);
      },
      kill: () => process.kill("SIGKILL"),
      freeze: () => process.kill("SIGSTOP"),
      thaw: () => process.kill("SIGCONT"),
    });
  }
  return servers;
}

/** A server on a host of a network in place of this machine. */
export function runOn(host: Host | undefined, server: PreparedServer): PreparedServer {
  if (host === undefined) return server;
  const [program, ...prefix] = host.prefix as [string, ...string[]];
  const url = new URL(server.url);
  url.hostname = host.address;
  const args = [...prefix, server.program, ...server.args, `--bind-address=${host.address}`];
  return { ...server, program, args, url: url.href };
}

/** Asks a node for a single value. */
export async function askNode(node: ClusterNode, expression: string, withinMs?: number): Promise<string> {
  const [row] = await node.query<{ answer: unknown }>(`SELECT ${expression} AS answer`, withinMs);
  return String(row?.answer);
}

async function query<Row>(url: string, sql: string, withinMs = 2_000): Promise<Row[]> {
  const connecting = connectMysql(url);
  const asking = connecting.then((connection) => connection.query(sql));
  const ended = new AbortController();
  const late = delay(withinMs, undefined, { signal: ended.signal }).then(() => {
    throw new Error(`no answer in ${withinMs} ms to: ${sql}`);
  });
  try {
    const [rows] = await Promise.race([asking, late]);
    return rows as Row[];
  } finally {
    ended.abort();
    for (const left of [asking, late]) left.catch(() => {});
    connecting.then((connection) => connection.destroy()).catch(() => {});
  }
}
