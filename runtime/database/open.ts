/** Opens databases: MySQL, MariaDB or SQLite. */
import type { Socket } from "node:net";
import knex, { type Knex } from "knex";
import { ReadOnlyServerError, showsLostServer } from "./database-errors.ts";
import { type Engine, engineBehind, engineOf, engines } from "./engine.ts";
import type { AfterCreate, PooledConnection, QueryEvent } from "./knex-internals.ts";
import { discardAllConnections, discardConnection, quiet } from "./knex-internals.ts";
import { serverQuestionSql } from "./server-question.ts";
import { sessionSettings } from "./session-settings.ts";
import { openSqlite } from "./sqlite.ts";

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
  return url.startsWith("sqlite:")
    ? openSqlite(url.slice("sqlite:".length), options.makesFile)
    : openMysql(url, options);
}

const lostServers = new WeakSet<Error>();

/**
 * True for the error of a query whose connection was open but leads to no server that can be used. Another attempt
 * takes a new connection, which may lead to another server.
 */
export function wasServerLost(error: unknown): boolean {
  return lostServers.has(error as Error);
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
      // An answer that has arrived while this thread was busy or frozen is read before the immediate.
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
    ...quiet,
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
