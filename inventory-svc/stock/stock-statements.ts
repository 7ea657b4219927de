/** The statements of a write, with their texts made once. */

import type { Knex } from "knex";
import type { ListedItem } from "../../proto/pet.ts";
import { clockMs, RowsStatement, type Statement, statementOf } from "../../runtime/database/statements.ts";
import type { LedgerRow } from "./change.ts";
import { columns, ledgerColumns, ledgerTable, onceColumns, toLedgerRow, toRow } from "./stock-rows.ts";

/** Knex writes an insert of many rows for SQLite as a compound SELECT, which may have 500 terms. */
const maxRowsPerInsert = 500;

/** The statements of a write, between BEGIN and COMMIT. */
export class WriteStatements {
  /** Locks the counter row and reads it. On SQLite, BEGIN has taken the lock already. */
  readonly lockCounter: Statement;
  readonly #advanceCounter: Statement;
  readonly #entries: RowsStatement<"pet_id">;
  readonly #setEntries: RowsStatement<(typeof columns)[number]>;
  readonly #records: RowsStatement<"once_id">;
  readonly #lowestId: Statement;
  readonly #addToLedger: RowsStatement<(typeof ledgerColumns)[number]>;
  readonly #keepsHistory: boolean;

  /** @param keepsHistory whether the ledger keeps changes that happen each time, too */
  constructor(db: Knex, keepsHistory: boolean) {
    this.#keepsHistory = keepsHistory;
    const counter = () => db("stock_head").where("id", db.raw("1"));
    this.lockCounter = statementOf(counter().select("epoch", "revision").forUpdate());
    this.#advanceCounter = statementOf(counter().update({ revision: 0 }));
    this.#entries = selectBy(db, "pet_id", "stock", columns);
    this.#setEntries = new RowsStatement(columns, (rows) => db("stock").insert(rows).onConflict("pet_id").merge());
    this.#records = selectBy(db, "once_id", ledgerTable, onceColumns);
    this.#lowestId = statementOf(db(ledgerTable).min("id as id"));
    const made_at = db.raw(clockMs(db));
    this.#addToLedger = new RowsStatement(ledgerColumns, (rows) => {
      return db(ledgerTable).insert(rows.map((row) => ({ ...row, made_at })));
    });
  }

  /** Moves the counter on, while it is locked. */
  advanceCounter(to: bigint): Statement {
    return { sql: this.#advanceCounter.sql, bindings: [to] };
  }

  /** Reads these entries, tombstones included. */
  entries(petIds: Iterable<bigint>): Statement {
    return this.#entries.for(Array.from(petIds, (pet_id) => ({ pet_id })));
  }

  setEntries(rows: readonly ListedItem[]): Statement[] {
    return chunks(rows, maxRowsPerInsert).map((some) => this.#setEntries.for(some.map(toRow)));
  }

  /** Reads the records of changes that happen once, and the lowest id of the ledger. @returns none for no id */
  records(ids: ReadonlySet<string>): Statement[] {
    const rows = Array.from(ids, (once_id) => ({ once_id }));
    return rows.length === 0 ? [] : [this.#records.for(rows), this.#lowestId];
  }

  addToLedger(changes: readonly LedgerRow[]): Statement[] {
    const kept = this.#keepsHistory ? changes : changes.filter(({ once }) => once);
    return chunks(kept, maxRowsPerInsert).map((some) => this.#addToLedger.for(some.map(toLedgerRow)));
  }
}

/** Reads the rows that have one of these values in a column. */
function selectBy<Column extends string>(db: Knex, column: Column, table: string, selected: readonly string[]) {
  return new RowsStatement([column], (rows) => {
    const values = rows.map((row) => row[column]);
    return db(table).select(selected).whereIn(column, values);
  });
}

function chunks<T>(values: readonly T[], size: number): T[][] {
  const result: T[][] = [];
  for (let i = 0; i < values.length; i += size) result.push(values.slice(i, i + size));
  return result;
}
