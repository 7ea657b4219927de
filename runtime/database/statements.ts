/**
 * Keeps the texts of statements, so that Knex builds each once.
 *
 * Building a text costs as much as running it.
 */
import type { Knex } from "knex";
import { isSqlite } from "./open.ts";

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
export function clockMs(db: Knex): string {
  return isSqlite(db) ? "cast(unixepoch('subsec') * 1000 as integer)" : "cast(unix_timestamp(now(3)) * 1000 as signed)";
}

/** A table, for FROM, that is read by this index. SQLite needs no such hint: it uses all columns of an index that it can. */
export function byIndex(db: Knex, table: string, index: string): Knex.Raw {
  return isSqlite(db) ? db.raw("??", [table]) : db.raw("?? force index (??)", [table, index]);
}

/** Texts are kept for statements of at most this many rows. */
const maxKeptRows = 1_000;

/** A statement for any number of rows. Knex builds its text once for each number. */
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
