/**
 * Holds the uses of what is inside Knex and its pool tarn, but for `batch` (migrations.ts) and the form of messages
 * (open.ts, faults.ts). An update of Knex can break these.
 */
import type { Knex } from "knex";

/** A connection of Knex's pool, as its driver made it. */
export interface PooledConnection {
  /** With a reason here, Knex closes the connection before its next use, and opens another. */
  __knex__disposed?: unknown;
}

interface Pool {
  readonly max: number;
  readonly used: readonly { readonly resource: PooledConnection }[];
  readonly free: readonly { readonly resource: PooledConnection }[];
  numUsed(): number;
  numFree(): number;
  numPendingAcquires(): number;
}

interface KnexClient {
  readonly config: Knex.Config;
  /** Undefined once the pool is destroyed. */
  readonly pool?: Pool;
  acquireConnection(): Promise<PooledConnection>;
  releaseConnection(connection: PooledConnection): Promise<void>;
  query(connection: PooledConnection, query: object): Promise<unknown>;
  emit(event: "query-response", response: unknown, query: object): void;
}

const clientOf = (db: Knex): KnexClient => db.client;

/** The configuration that Knex was made with. */
export function configOf(db: Knex): Knex.Config {
  return clientOf(db).config;
}

export function isSqlite(db: Knex): boolean {
  return configOf(db).client === "better-sqlite3";
}

/**
 * Options that silence Knex. It would print to standard output, where logs are JSON and exports are data; callers get
 * all errors. It would also format a failing statement for its message, and that throws on a bigint binding, hiding the
 * real error.
 */
export const quiet = { log: { warn: () => {}, error: () => {} }, compileSqlOnError: false } satisfies Knex.Config;

/** Prepares each new connection of a pool, and calls `done` once it may be used. */
export type AfterCreate<Connection> = (
  connection: Connection,
  done: (error: Error | null, connection: unknown) => void,
) => void;

/** Takes a connection out of the pool. @throws what the driver throws, or Knex when the wait is too long */
export async function acquireConnection<Driver extends object>(db: Knex): Promise<Driver & PooledConnection> {
  return (await clientOf(db).acquireConnection()) as Driver & PooledConnection;
}

/** Runs checks before and after a connection is taken. The taker gets what they throw. */
export function checkTaken(db: Knex, before: () => void, after: () => void): void {
  const client = clientOf(db);
  const acquire = client.acquireConnection.bind(client);
  client.acquireConnection = async () => {
    before();
    const connection = await acquire();
    try {
      after();
      return connection;
    } catch (error) {
      await client.releaseConnection(connection);
      throw error;
    }
  };
}

export async function releaseConnection(db: Knex, connection: PooledConnection): Promise<void> {
  await clientOf(db).releaseConnection(connection);
}

/** Makes Knex close a connection instead of using it again. */
export function discardConnection(connection: PooledConnection, reason: unknown): void {
  connection.__knex__disposed = reason;
}

/** The connections that are open and may be used again, those that are free first. */
export function openConnections(db: Knex): PooledConnection[] {
  const { pool } = clientOf(db);
  const all = [...(pool?.free ?? []), ...(pool?.used ?? [])].map(({ resource }) => resource);
  return all.filter(({ __knex__disposed }) => __knex__disposed === undefined);
}

/** Makes Knex close every connection that is open now instead of using it again. */
export function discardAllConnections(db: Knex, reason: unknown): void {
  for (const connection of openConnections(db)) discardConnection(connection, reason);
}

/** Counts the connections in use, those that are free, the callers that wait for one, and the maximum. */
export function poolUse(db: Knex) {
  const { pool } = clientOf(db);
  return {
    used: pool?.numUsed() ?? 0,
    free: pool?.numFree() ?? 0,
    waiting: pool?.numPendingAcquires() ?? 0,
    max: pool?.max ?? 0,
  };
}

/** What Knex passes to listeners of "query", "query-response" and "query-error". */
export interface QueryEvent {
  readonly sql: string;
  readonly __knexQueryUid: string;
}

/** Names a query in all of its events. */
export function queryIdOf(event: QueryEvent): string {
  return event.__knexQueryUid;
}

let lastQuery = 0;

/**
 * Sends a statement over a connection, with the events of Knex and without the work of building the statement.
 *
 * @returns the response as the driver gives it
 */
export async function sendQuery(
  db: Knex,
  connection: PooledConnection,
  sql: string,
  bindings: readonly unknown[],
): Promise<unknown> {
  lastQuery += 1;
  const query: QueryEvent & { bindings: readonly unknown[]; response?: unknown } = {
    sql,
    bindings,
    __knexQueryUid: `sent-${lastQuery}`,
  };
  await clientOf(db).query(connection, query);
  clientOf(db).emit("query-response", query.response, query);
  return query.response;
}
