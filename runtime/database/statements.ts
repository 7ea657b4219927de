/**
 * Makes statements, and runs them: alone, in a transaction, and again where the database has taken back what they did.
 */

import { setImmediate } from "node:timers/promises";
import type { Knex } from "knex";
import { isTransient, provesUndone } from "./database-errors.ts";
import { engineBehind } from "./engine.ts";
import {
  acquireConnection,
  discardConnection,
  isSqlite,
  type PooledConnection,
  releaseConnection,
  sendQuery,
} from "./knex-internals.ts";

/** A statement as the database gets it. */
export interface Statement {
  readonly sql: string;
  readonly bindings: readonly unknown[];
}

/** Makes a statement of a query. */
export function statementOf(query: Knex.QueryBuilder | Knex.Raw): Statement {
  const { sql, bindings } = query.toSQL().toNative();
  return { sql, bindings };
}

/** The clock of the database in Unix milliseconds, as SQL: those of the processes that use it may differ. */
export function clockMsSql(db: Knex): string {
  return isSqlite(db) ? "cast(unixepoch('subsec') * 1000 as integer)" : "cast(unix_timestamp(now(3)) * 1000 as signed)";
}

/**
 * A table for FROM, to be read by this index. SQLite needs no such hint: it uses as many columns of an index as it can.
 */
export function byIndex(db: Knex, table: string, index: string): Knex.Raw {
  return isSqlite(db) ? db.raw("??", [table]) : db.raw("?? force index (??)", [table, index]);
}

/** Texts are kept for statements of at most this many rows. */
const maxKeptRows = 1_000;

/** A statement for any number of rows. Knex builds its text once for each number: that costs as much as running it. */
export class RowsStatement<Column extends string> {
  readonly #build: (rows: readonly Record<Column, never>[]) => Knex.QueryBuilder;
  /** The columns in the order in which Knex binds the values of a row. */
  readonly #bindingOrder: readonly Column[];
  readonly #texts = new Map<number, string>();

  /** @param build makes the query for some rows; it may hold no value but theirs, row by row */
  constructor(columns: readonly Column[], build: (rows: readonly Record<Column, never>[]) => Knex.QueryBuilder) {
    this.#build = build;
    // A row whose values are the names of their columns shows in which order Knex binds them.
    const names = Object.fromEntries(columns.map((name) => [name, name])) as Record<Column, never>;
    this.#bindingOrder = statementOf(build([names])).bindings as Column[];
  }

  /** @param rows at least one */
  for(rows: readonly Record<Column, unknown>[]): Statement {
    let sql = this.#texts.get(rows.length);
    if (sql === undefined) {
      sql = statementOf(this.#build(rows as readonly Record<Column, never>[])).sql;
      if (rows.length <= maxKeptRows) this.#texts.set(rows.length, sql);
    }
    return { sql, bindings: rows.flatMap((row) => this.#bindingOrder.map((name) => row[name])) };
  }
}

/** How many rows an UPDATE matched, whether or not it changed them. @param result of the statement, from the driver */
export function matchedRows(result: unknown): number {
  const { affectedRows, changes } = result as { affectedRows?: number; changes?: number }; // mysql2's, better-sqlite3's
  return affectedRows ?? changes ?? 0;
}

/** Maximum attempts at a transaction that the database takes back each time. */
export const maxAttempts = 4;

/**
 * A transaction that writes. BEGIN goes out with its first statements and COMMIT with its last ones. Statements of one
 * call take one round trip where the engine takes that, and round trips are most of the time of a transaction.
 *
 * `end` must be called once, whatever has happened.
 */
export class Transaction {
  readonly #db: Knex;
  readonly #connection: PooledConnection & { readonly inTransaction?: boolean };
  /** Its last step that was sent; "none" before the first one, and once it is committed. */
  #sent: "none" | "BEGIN" | "COMMIT" = "none";

  private constructor(db: Knex, connection: PooledConnection) {
    this.#db = db;
    this.#connection = connection;
  }

  /** Takes a connection; nothing is sent yet. */
  static async open(db: Knex): Promise<Transaction> {
    // SQLite works without leaving the thread, so everything else gets a turn of the event loop first.
    if (isSqlite(db)) await setImmediate();
    return new Transaction(db, await acquireConnection(db));
  }

  /** Runs statements together. @returns the result of each, as the driver gives it */
  async run(...statements: readonly Statement[]): Promise<unknown[]> {
    const opening = this.#sent === "none" ? [isSqlite(this.#db) ? beginOnSqlite : begin] : [];
    this.#sent = "BEGIN";
    const results = await this.#send([...opening, ...statements]);
    return results.slice(opening.length);
  }

  /** Runs statements and commits, together. @returns the result of each statement, as the driver gives it */
  async commit(...statements: readonly Statement[]): Promise<unknown[]> {
    const results = await this.run(...statements, commit);
    this.#sent = "none";
    return results.slice(0, -1);
  }

  /**
   * Whether this transaction may have happened although `commit` threw this error. It has not when COMMIT was not sent,
   * or when the error proves it.
   */
  mayHaveHappened(error: unknown): boolean {
    return this.#sent === "COMMIT" && !provesUndone(error);
  }

  /** Takes back what is not committed, and returns the connection to the pool. */
  async end(): Promise<void> {
    // SQLite says whether a transaction is open: BEGIN may have failed, or an error may have taken it back already.
    if (isSqlite(this.#db) ? this.#connection.inTransaction : this.#sent !== "none") {
      await send(this.#db, this.#connection, rollback).catch((fault) => discardConnection(this.#connection, fault));
    }
    await releaseConnection(this.#db, this.#connection);
  }

  /** Sends statements in one round trip where the engine takes that, and one by one otherwise. */
  async #send(statements: readonly Statement[]): Promise<unknown[]> {
    if (!engineBehind(this.#connection).canPipeline) {
      const results: unknown[] = [];
      for (const statement of statements) {
        if (statement === commit) this.#sent = "COMMIT";
        results.push(await send(this.#db, this.#connection, statement));
      }
      return results;
    }
    if (statements.at(-1) === commit) this.#sent = "COMMIT";
    const sql = statements.map((statement) => statement.sql).join(";");
    const bindings = statements.flatMap((statement) => statement.bindings);
    const results = await send(this.#db, this.#connection, { sql, bindings });
    return statements.length === 1 ? [results] : (results as unknown[]);
  }
}

const begin: Statement = { sql: "BEGIN", bindings: [] };
// Takes the lock to write: without it, a transaction that has read may not write after another one did.
const beginOnSqlite: Statement = { sql: "BEGIN IMMEDIATE", bindings: [] };
const commit: Statement = { sql: "COMMIT", bindings: [] };
const rollback: Statement = { sql: "ROLLBACK", bindings: [] };

/**
 * Runs a statement or a whole transaction, and again where the database has taken it back.
 *
 * @param work must hold the whole transaction, so that nothing of a failed attempt is left. It may happen twice: on
 *   Group Replication another member may commit what this one has taken back
 */
export function retried<T>(work: () => Promise<T>): Promise<T> {
  return retriedWhere(isTransient, work);
}

/** The same for work that must not happen twice: it is run again only where it has certainly not happened. */
export function retriedIfUndone<T>(work: () => Promise<T>): Promise<T> {
  return retriedWhere((error) => isTransient(error) && provesUndone(error), work);
}

async function retriedWhere<T>(mayRetry: (error: unknown) => boolean, work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (attempt === maxAttempts || !mayRetry(error)) throw error;
    }
  }
}

/** Runs one statement outside of a transaction. @returns its rows */
export async function runStatement<Row>(db: Knex, statement: Statement): Promise<Row[]> {
  const connection = await acquireConnection(db);
  try {
    return (await send(db, connection, statement)) as Row[];
  } finally {
    await releaseConnection(db, connection);
  }
}

async function send(db: Knex, connection: PooledConnection, { sql, bindings }: Statement): Promise<unknown> {
  const response = await sendQuery(db, connection, sql, bindings);
  return isSqlite(db) ? response : (response as [unknown])[0]; // MySQL's comes with its columns
}
