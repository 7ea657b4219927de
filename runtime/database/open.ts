import { mkdirSync } from "node:fs";
import type { Socket } from "node:net";
import { dirname } from "node:path";
import { setImmediate } from "node:timers/promises";
import knex, { type Knex } from "knex";

export interface DatabaseOptions {
  /** Connections at the most; an embedded SQLite file always has one. */
  readonly poolMax: number;
  /** How long a caller waits for a connection, and a new connection for the server. */
  readonly acquireTimeoutMs: number;
  /** A connection over which nothing came for so long is closed, idle or not: a frozen server holds nobody. */
  readonly silenceTimeoutMs: number;
}

export const databaseDefaults: DatabaseOptions = { poolMax: 10, acquireTimeoutMs: 2_000, silenceTimeoutMs: 5_000 };

/**
 * Opens the database behind a URL. This is the only place that knows dialects: queries are the same for all.
 *
 * 64-bit integers come back as `bigint` from both; narrower ones as `bigint` (SQLite) or `number` (MySQL), so the
 * stores convert what they read.
 *
 * @param url `sqlite:path/to/file` (`sqlite::memory:` for one that is never written) or `mysql://user:password@host:port/database`
 */
export function openDatabase(url: string, options: DatabaseOptions = databaseDefaults): Knex {
  return url.startsWith("sqlite:") ? openSqlite(url.slice("sqlite:".length)) : openMysql(url, options);
}

export function isSqlite(db: Knex): boolean {
  return db.client.config.client === "better-sqlite3";
}

/** Knex prints to standard output, where logs are JSON and exports are data. Its callers get every error anyway. */
const log: Knex.Logger = { warn: () => {}, error: () => {} };

function openSqlite(filename: string): Knex {
  if (filename !== ":memory:") mkdirSync(dirname(filename), { recursive: true });
  return knex({
    client: "better-sqlite3",
    log,
    // The connection is shared by everything in the process: a second one could not read while the first one writes.
    pool: {
      min: 1,
      max: 1,
      afterCreate: (connection: { pragma(text: string): void }, done: (error: Error | null, c: unknown) => void) => {
        connection.pragma("journal_mode = WAL");
        connection.pragma("synchronous = FULL"); // an acknowledged write survives a power cut, as on a durable MySQL
        connection.pragma("busy_timeout = 2000");
        connection.pragma("foreign_keys = ON");
        done(null, connection);
      },
    },
    acquireConnectionTimeout: 10_000,
    connection: { filename, options: { safeIntegers: true } } as Knex.StaticConnectionConfig,
    useNullAsDefault: true,
    // Knex formats a failing statement for its message, and that throws on a bigint binding, hiding the real error.
    compileSqlOnError: false,
  });
}

interface MysqlConnection {
  readonly stream: Socket;
  query(sql: string, done: (error: Error | null) => void): void;
}

/** What every connection to MySQL is set to. */
function mysqlSession(silenceTimeoutMs: number): string {
  // A lock is waited for less long than the silence time-out: it ends as an error that can be retried.
  const lockWaitSeconds = Math.min(3, Math.max(1, Math.floor(silenceTimeoutMs / 2_000)));
  return [
    // Each statement sees the newest commits, and looking for rows that are not there locks no gaps.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    `SET SESSION innodb_lock_wait_timeout = ${lockWaitSeconds}`,
    // Strict about values: NULL for a column that takes none is an error, on which writes rely. And without
    // NO_BACKSLASH_ESCAPES, under which mysql2's escapes would not hold.
    "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
  ].join(";");
}

function openMysql(url: string, { poolMax, acquireTimeoutMs, silenceTimeoutMs }: DatabaseOptions): Knex {
  const { hostname, port, username, password, pathname, searchParams } = new URL(url);
  return knex({
    client: "mysql2",
    log,
    pool: {
      min: 0,
      max: poolMax,
      afterCreate: (connection: MysqlConnection, done: (error: Error | null, c: unknown) => void) => {
        // Its stream, as `connection.destroy()` would leave the query that waits without an answer.
        connection.stream.setTimeout(silenceTimeoutMs, () => connection.stream.destroy());
        connection.query(mysqlSession(silenceTimeoutMs), (error) => done(error, connection));
      },
    },
    acquireConnectionTimeout: acquireTimeoutMs,
    connection: {
      host: hostname.replace(/^\[|\]$/g, ""),
      port: Number(port || 3306),
      user: decodeURIComponent(username),
      password: decodeURIComponent(password),
      database: decodeURIComponent(pathname.slice(1)),
      ...(searchParams.get("ssl") === "true" && { ssl: { rejectUnauthorized: true } }),
      connectTimeout: acquireTimeoutMs,
      charset: "utf8mb4",
      timezone: "Z",
      supportBigNumbers: true,
      multipleStatements: true, // for runTogether; every value is a binding, so none can become a statement
      typeCast: (field: { type: string; string(): string | null }, next: () => unknown) => {
        if (field.type !== "LONGLONG") return next();
        const text = field.string();
        return text === null ? null : BigInt(text);
      },
    } as Knex.StaticConnectionConfig,
    compileSqlOnError: false,
  });
}

/** Settings of a MySQL server by which a commit can be lost when it, or its machine, fails; none on SQLite. */
export async function durabilityWeaknesses(db: Knex): Promise<string[]> {
  if (isSqlite(db)) return [];
  const [[server]] = await db.raw(
    "SELECT @@innodb_flush_log_at_trx_commit AS flushLog, @@log_bin AS logBin, @@sync_binlog AS syncBinlog",
  );
  const weaknesses: string[] = [];
  if (Number(server.flushLog) !== 1) weaknesses.push(`innodb_flush_log_at_trx_commit is ${server.flushLog}, not 1`);
  if (Number(server.logBin) === 1 && Number(server.syncBinlog) !== 1) {
    weaknesses.push(`sync_binlog is ${server.syncBinlog}, not 1`);
  }
  return weaknesses;
}

/** Connections in use and free, callers that wait for one, and how many there may be. */
export function poolUse(db: Knex) {
  const { pool } = db.client as { pool?: Pool }; // none any more once it is destroyed
  return {
    used: pool?.numUsed() ?? 0,
    free: pool?.numFree() ?? 0,
    waiting: pool?.numPendingAcquires() ?? 0,
    max: pool?.max ?? 0,
  };
}

/** What Knex keeps its connections in (tarn). */
interface Pool {
  readonly max: number;
  readonly used: readonly { readonly resource: MarkedConnection }[];
  readonly free: readonly { readonly resource: MarkedConnection }[];
  numUsed(): number;
  numFree(): number;
  numPendingAcquires(): number;
}

interface MarkedConnection {
  /** Why it must not be used again. */
  __knex__disposed?: unknown;
}

/** A statement as the database gets it. Knex made its text. */
export interface Statement {
  readonly sql: string;
  readonly bindings: readonly unknown[];
}

/** Makes a statement of a query. It can be run any number of times: building one costs as much as running a small one. */
export function statementOf(query: Knex.QueryBuilder | Knex.Raw): Statement {
  const { sql, bindings } = query.toSQL().toNative();
  return { sql, bindings };
}

/** Texts are kept for statements of at most so many rows. */
const maxKeptRows = 1_000;

/**
 * A statement for any number of rows. Knex makes the text once for each number, which for many rows costs more than
 * running it.
 */
export class RowsStatement<Column extends string> {
  readonly #build: (rows: readonly Record<Column, never>[]) => Knex.QueryBuilder;
  readonly #places: readonly Column[];
  readonly #texts = new Map<number, string>();

  /** @param build the query for some rows, with no value in it but theirs, row by row */
  constructor(columns: readonly Column[], build: (rows: readonly Record<Column, never>[]) => Knex.QueryBuilder) {
    this.#build = build;
    // A row that has the name of each column in its place tells where Knex puts which.
    const names = Object.fromEntries(columns.map((name) => [name, name])) as Record<Column, never>;
    this.#places = statementOf(build([names])).bindings as Column[];
  }

  /** @param rows at least one */
  for(rows: readonly Record<Column, unknown>[]): Statement {
    let sql = this.#texts.get(rows.length);
    if (sql === undefined) {
      sql = statementOf(this.#build(rows as readonly Record<Column, never>[])).sql;
      if (rows.length <= maxKeptRows) this.#texts.set(rows.length, sql);
    }
    return { sql, bindings: rows.flatMap((row) => this.#places.map((name) => row[name])) };
  }
}

/** Runs a statement on any connection, and gives its rows. */
export async function run<Row>(db: Knex, statement: Statement): Promise<Row[]> {
  const connection = await db.client.acquireConnection();
  try {
    return (await send(db, connection, statement)) as Row[];
  } finally {
    await db.client.releaseConnection(connection);
  }
}

/** Runs statements on the connection of a transaction, and gives the result of each; see `inTransaction`. */
export type RunTogether = (...statements: readonly Statement[]) => Promise<unknown[]>;

/** ER_… of a server that takes no writes: since a failover another one does, but this connection leads to it still. */
const readOnly = new Set([
  "ER_OPTION_PREVENTS_STATEMENT",
  "ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION",
  "ER_READ_ONLY_MODE",
]);

/** True for the error of a server that takes no writes any more: nothing has happened, also where COMMIT has failed. */
export function isReadOnly(error: unknown): boolean {
  return readOnly.has(codeOf(error));
}

/** The name that a driver gives an error, as `ER_DUP_ENTRY`; empty for what is none of a driver. */
export function codeOf(error: unknown): string {
  return (error as { code?: string }).code ?? "";
}

/** Marks every connection that there is: Knex closes it before its next use, and opens another. */
function condemnAll(db: Knex, reason: unknown): void {
  const { pool } = db.client as { pool?: Pool };
  for (const { resource } of [...(pool?.used ?? []), ...(pool?.free ?? [])]) resource.__knex__disposed = reason;
}

const begin: Statement = { sql: "BEGIN", bindings: [] };
// SQLite gives up at once when a transaction that has read wants to write after another one did.
const beginOnSqlite: Statement = { sql: "BEGIN IMMEDIATE", bindings: [] };
const commit: Statement = { sql: "COMMIT", bindings: [] };
const rollback: Statement = { sql: "ROLLBACK", bindings: [] };

/**
 * Opens a transaction that writes. It ends with the work, which has to run COMMIT as its last statement; when the work
 * throws, nothing of it has happened unless that was COMMIT itself.
 *
 * Statements that are run together go to MySQL in one round trip, and a transaction is bound by its round trips.
 *
 * @param work gets a function that runs statements, and those that begin and end the transaction
 */
export async function inTransaction<T>(
  db: Knex,
  work: (run: RunTogether, begin: Statement, commit: Statement) => Promise<T>,
): Promise<T> {
  // SQLite writes at once, without leaving the thread: others have their turn before it does again.
  if (isSqlite(db)) await setImmediate();
  const connection = await db.client.acquireConnection();
  try {
    return await work(
      (...statements) => sendTogether(db, connection, statements),
      isSqlite(db) ? beginOnSqlite : begin,
      commit,
    );
  } catch (error) {
    if (isSqlite(db) && !connection.inTransaction) throw error; // it could not even begin
    // Knex closes a connection that is marked so, instead of giving it to the next one.
    await send(db, connection, rollback).catch((fault) => {
      connection.__knex__disposed = fault;
    });
    if (isReadOnly(error)) condemnAll(db, error);
    throw error;
  } finally {
    await db.client.releaseConnection(connection);
  }
}

async function sendTogether(db: Knex, connection: unknown, statements: readonly Statement[]): Promise<unknown[]> {
  if (isSqlite(db)) {
    const results: unknown[] = [];
    for (const statement of statements) results.push(await send(db, connection, statement));
    return results;
  }
  const sql = statements.map((statement) => statement.sql).join(";");
  const bindings = statements.flatMap((statement) => statement.bindings);
  const results = await send(db, connection, { sql, bindings });
  return statements.length === 1 ? [results] : (results as unknown[]);
}

/** How many rows an UPDATE was about, whether or not it changed them. */
export function matchedRows(result: unknown): number {
  const { affectedRows, changes } = result as { affectedRows?: number; changes?: number }; // of mysql2, of better-sqlite3
  return affectedRows ?? changes ?? 0;
}

/** Of a transaction that lost against another one. */
const lostRaces = new Set([
  "ER_LOCK_DEADLOCK",
  "ER_LOCK_WAIT_TIMEOUT",
  "ER_CHECKREAD",
  "SQLITE_BUSY",
  "SQLITE_BUSY_SNAPSHOT",
]);

/**
 * True for the error of a transaction that lost against another one, or met a server that takes no writes any more: the
 * database has taken all of it back, and another try may go well.
 */
export function isTakenBack(error: unknown): boolean {
  return lostRaces.has(codeOf(error)) || isReadOnly(error);
}

/** What the database has taken back is tried so many times. */
export const maxAttempts = 4;

/**
 * Runs a statement or a whole transaction, and again where the database has taken it back.
 *
 * @param work must hold the whole transaction, so that nothing of a failed attempt is left
 */
export async function retried<T>(db: Knex, work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (isReadOnly(error)) condemnAll(db, error);
      // SQLite has waited for the lock already, and on this thread.
      if (attempt === maxAttempts || !isTakenBack(error) || codeOf(error) === "SQLITE_BUSY") throw error;
    }
  }
}

let lastQuery = 0;

/** Has Knex send a statement, with its events, and without what it does to build one. */
async function send(db: Knex, connection: unknown, { sql, bindings }: Statement): Promise<unknown> {
  lastQuery += 1;
  const query: { response?: unknown } = { sql, bindings, __knexQueryUid: `sent-${lastQuery}` } as object;
  await db.client.query(connection, query);
  db.client.emit("query-response", query.response, query);
  return isSqlite(db) ? query.response : (query.response as [unknown])[0]; // MySQL's comes with its columns
}
