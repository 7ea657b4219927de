/** Opens databases: MySQL, MariaDB or SQLite. */
import { mkdirSync } from "node:fs";
import type { Socket } from "node:net";
import { dirname } from "node:path";
import knex, { type Knex } from "knex";
import { DatabaseStateError, ReadOnlyServerError, showsLostServer } from "./database-errors.ts";
import { type Engine, engineOf, sqliteEngine } from "./engine.ts";
import type { PooledConnection, QueryEvent } from "./knex-internals.ts";
import { checkTaken, configOf, discardAllConnections, discardConnection } from "./knex-internals.ts";
import { serverQuestionSql } from "./server-question.ts";
import { sessionSettings } from "./session-settings.ts";
import { filesAt, requireFile, requireWritable } from "./sqlite-files.ts";

/** All options but `makesFile` are for MySQL. A process has one connection to SQLite, and waits for it up to 10 s. */
export interface DatabaseOptions {
  /** Maximum connections. */
  readonly poolMax: number;
  /** How long a caller waits for a connection, and a new connection for the server. */
  readonly acquireTimeoutMs: number;
  /**
   * Time without a byte after which a connection is closed, so that a frozen server delays no caller for longer.
   * Halfway, the client sends a ping. The server closes a silent session after twice this time, so that a frozen
   * process keeps no lock for longer.
   */
  readonly silenceTimeoutMs: number;
  /** Gets the engine of each new connection: after a failover it may be another server. */
  readonly onConnected: (engine: Engine) => void;
  /** Whether a missing SQLite file is made, with its folder. Else a mistyped path is an error, and makes none. */
  readonly makesFile: boolean;
}

export const databaseDefaults: DatabaseOptions = {
  poolMax: 10,
  acquireTimeoutMs: 2_000,
  silenceTimeoutMs: 5_000,
  onConnected: () => {},
  makesFile: false,
};

const engines = new WeakMap<PooledConnection, Engine>();

/** The engine that a connection leads to. */
export function engineBehind(connection: PooledConnection): Engine {
  return engines.get(connection) ?? sqliteEngine;
}

/**
 * Asks an open connection to MySQL which engine it leads to by now, also while it is in use. A connection that leads to
 * another writer than before is given up: its session lacks what that one needs.
 *
 * @throws what the driver throws
 */
export async function askAgain(connection: PooledConnection): Promise<Engine> {
  const mysql = connection as MysqlConnection;
  const results = await new Promise<unknown[]>((resolve, reject) => {
    mysql.query(serverQuestionSql, (error, results) => {
      if (!error) return resolve(results);
      // When this callback returns, the driver sends the statements that wait. If the server has undone their
      // transaction, which only this error tells, they would run outside of it.
      mysql.stream.destroy();
      reject(error);
    });
  });
  const engine = engineOf(results);
  if (engine.writer !== engineBehind(connection).writer) {
    discardConnection(connection, new Error("the database server is another one, or in another mode"));
  }
  return engine;
}

/**
 * Opens the database behind a URL. Queries are the same for all engines.
 *
 * 64-bit integers come back as `bigint` from all of them. Narrower ones come back as `bigint` (SQLite) or `number`
 * (MySQL), so the stores convert what they read.
 *
 * @param url `sqlite:path/to/file`, `sqlite::memory:` (never written to a file) or
 *   `mysql://user:password@host:port/database`
 */
export function openDatabase(url: string, options: DatabaseOptions = databaseDefaults): Knex {
  return url.startsWith("sqlite:") ? openSqlite(url.slice("sqlite:".length), options) : openMysql(url, options);
}

const lostServers = new WeakSet<Error>();

/**
 * True for the error of a query whose connection was open but leads to no server that can be used. Another attempt
 * takes a new connection, which may lead to another server.
 */
export function lostServerInUse(error: unknown): boolean {
  return lostServers.has(error as Error);
}

export function isSqlite(db: Knex): boolean {
  return configOf(db).client === "better-sqlite3";
}

/**
 * Silences Knex, which would print to standard output, where logs are JSON and exports are data. Callers get all
 * errors.
 */
const log: Knex.Logger = { warn: () => {}, error: () => {} };

type AfterCreate<Connection> = (connection: Connection, done: (error: Error | null, c: unknown) => void) => void;

function openSqlite(filename: string, { makesFile }: DatabaseOptions): Knex {
  const isFile = filename !== ":memory:";
  if (isFile && makesFile) mkdirSync(dirname(filename), { recursive: true });
  let opened: string | undefined;
  const afterCreate: AfterCreate<{ pragma(text: string, options?: object): unknown; close(): void }> = (
    connection,
    done,
  ) => {
    // Otherwise damage in the middle of the file is found by the first caller that needs a damaged page.
    const [found] = connection.pragma("quick_check(1)", { simple: false }) as [{ quick_check: string }];
    if (found.quick_check !== "ok") {
      connection.close();
      const message = `the SQLite file ${filename} is damaged (${found.quick_check}): restore a backup`;
      return done(new DatabaseStateError(message), connection);
    }
    connection.pragma("journal_mode = WAL");
    connection.pragma("synchronous = FULL"); // an acknowledged write survives a power cut, as on a durable MySQL
    connection.pragma("busy_timeout = 2000");
    connection.pragma("foreign_keys = ON");
    connection.pragma("user_version"); // the first read makes the log
    if (isFile) opened = filesAt(filename);
    done(null, connection);
  };
  const db = knex({
    client: "better-sqlite3",
    log,
    // The whole process shares one connection. A second one would gain nothing, because each statement blocks this
    // thread. It would do harm where it waits for a lock of the first: that wait blocks the thread, too.
    pool: { min: 1, max: 1, afterCreate },
    acquireConnectionTimeout: 10_000,
    connection: { filename, options: { safeIntegers: true } } as Knex.StaticConnectionConfig,
    useNullAsDefault: true,
    // Knex formats a failing statement for its message, and that throws on a bigint binding, hiding the real error.
    compileSqlOnError: false,
  });
  // SQLite goes on in files that have lost their names, and whatever it commits there is gone with the process.
  if (isFile) {
    const beforeOpening = () => {
      if (opened !== undefined) return;
      if (!makesFile) requireFile(filename);
      requireWritable(filename);
    };
    checkTaken(db, beforeOpening, () => {
      if (filesAt(filename) === opened) return;
      throw new DatabaseStateError(
        `the SQLite file ${filename}, or its -wal file, was deleted or replaced while it was open: restore it and restart`,
      );
    });
  }
  return db;
}

/** Connections that are idle for this many silence timeouts are closed, all but one. */
const idleTimeouts = 6;

interface MysqlConnection extends PooledConnection {
  readonly stream: Socket;
  promise(): { query(sql: string): Promise<[unknown[], unknown]> };
  query(sql: string, done: (error: Error | null, results: unknown[]) => void): void;
  ping(done: (error: unknown) => void): void;
  destroy(): void;
}

function openMysql(url: string, options: DatabaseOptions): Knex {
  const { poolMax, acquireTimeoutMs, silenceTimeoutMs, onConnected } = options;
  const { hostname, port, username, password, pathname, searchParams } = new URL(url);
  const afterCreate: AfterCreate<MysqlConnection> = (connection, done) => {
    const { stream } = connection;
    const halfMs = silenceTimeoutMs / 2;
    let bytesAtHalf: number | undefined;
    stream.setTimeout(halfMs).on("timeout", () => {
      const { bytesRead } = stream;
      // An answer that has arrived while this thread was busy, or got no time, is read before the immediate.
      setImmediate(() => {
        if (stream.bytesRead !== bytesRead) return;
        // `connection.destroy()` would leave a query under way without an answer. The end of its stream does not.
        if (bytesRead === bytesAtHalf) return void stream.destroy();
        bytesAtHalf = bytesRead;
        // As in `askAgain`: an error may be the only sign that the server has undone a transaction.
        connection.ping((error) => error && stream.destroy());
        stream.setTimeout(halfMs);
      });
    });
    prepareSession(connection, silenceTimeoutMs).then(
      (engine) => {
        engines.set(connection, engine);
        onConnected(engine);
        done(null, connection);
      },
      (error) => {
        connection.destroy(); // the pool does not know it yet
        done(error, connection);
      },
    );
  };
  const db = knex({
    client: "mysql2",
    // Otherwise Knex asks for it on the first connection, without a time-out, and all others wait for that answer.
    version: "latest",
    log,
    // The last connection is not closed for being idle: callers after a quiet time then need no name service.
    pool: { min: 1, max: poolMax, idleTimeoutMillis: idleTimeouts * silenceTimeoutMs, afterCreate },
    acquireConnectionTimeout: acquireTimeoutMs,
    connection: {
      host: hostname.replace(/^\[|\]$/g, ""),
      port: Number(port || 3306),
      user: decodeURIComponent(username),
      password: decodeURIComponent(password),
      database: decodeURIComponent(pathname.slice(1)),
      ...(searchParams.get("ssl") === "true" && { ssl: { rejectUnauthorized: true, verifyIdentity: true } }),
      connectTimeout: acquireTimeoutMs,
      charset: "utf8mb4",
      timezone: "Z",
      supportBigNumbers: true,
      multipleStatements: true, // transactions need it; every value is a binding, so none can become a statement
      typeCast: (field: { type: string; string(): string | null }, next: () => unknown) => {
        if (field.type !== "LONGLONG") return next();
        const text = field.string();
        return text === null ? null : BigInt(text);
      },
    } as Knex.StaticConnectionConfig,
    compileSqlOnError: false,
  });
  // What one connection has found out holds for the others: they lead to the same server.
  db.on("query-error", (error, { sql }: QueryEvent) => {
    error.message = error.message.replace(`${sql} - `, ""); // which Knex has put before what the driver says
    if (!showsLostServer(error)) return;
    lostServers.add(error);
    discardAllConnections(db, error);
  });
  return db;
}

/**
 * Gives a new connection its settings, and asks which engine it leads to.
 *
 * @throws ReadOnlyServerError for a server that takes no writes
 */
async function prepareSession(connection: MysqlConnection, silenceTimeoutMs: number): Promise<Engine> {
  const [results] = await connection.promise().query(`${sessionSettings(silenceTimeoutMs)};${serverQuestionSql}`);
  const engine = engineOf(results);
  if (engine.isReadOnly) throw new ReadOnlyServerError();
  if (engine.ownSettings.length > 0) await connection.promise().query(engine.ownSettings.join(";"));
  return engine;
}
