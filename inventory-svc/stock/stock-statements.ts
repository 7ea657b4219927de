/** The statements of a write, with their texts made once. */
import type { Knex } from "knex";
import { clockMs, RowsStatement, type Statement, statementOf } from "../../runtime/database/statements.ts";
import type { OnceRecord, StockRow } from "./decide-changes.ts";
import { columns, recordColumns, recordsTable, toRecordRow, toRow } from "./stock-rows.ts";

/** Knex writes an insert of many rows for SQLite as a compound SELECT, which may have 500 terms. */
const maxRowsPerInsert = 500;

/** The statements of a write, between BEGIN and COMMIT. */
export class WriteStatements {
  /** Locks the counter row and reads it. On SQLite, BEGIN has taken the lock already. */
  readonly lockCounter: Statement;
  readonly #advanceCounter: Statement;
  readonly #entries: RowsStatement<"pet_id">;
  readonly #setEntries: RowsStatement<(typeof columns)[number]>;
  readonly #records: RowsStatement<"request_id">;
  readonly #addRecords: RowsStatement<(typeof recordColumns)[number]>;

  constructor(db: Knex) {
    const counter = () => db("stock_head").where("id", db.raw("1"));
    this.lockCounter = statementOf(counter().select("revision").forUpdate());
    this.#advanceCounter = statementOf(counter().update({ revision: 0 }));
    this.#entries = selectBy(db, "pet_id", "stock", columns);
    this.#setEntries = new RowsStatement(columns, (rows) => db("stock").insert(rows).onConflict("pet_id").merge());
    this.#records = selectBy(db, "request_id", recordsTable, recordColumns);
    const made_at = db.raw(clockMs(db));
    this.#addRecords = new RowsStatement(recordColumns, (rows) => {
      return db(recordsTable).insert(rows.map((row) => ({ ...row, made_at })));
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

  setEntries(rows: readonly StockRow[]): Statement[] {
    return chunks(rows, maxRowsPerInsert).map((some) => this.#setEntries.for(some.map(toRow)));
  }

  /** Reads the records of changes that happen once. @returns no statement for no id */
  records(ids: ReadonlySet<string>): Statement[] {
    const rows = Array.from(ids, (request_id) => ({ request_id }));
    return rows.length === 0 ? [] : [this.#records.for(rows)];
  }

  addRecords(records: readonly OnceRecord[]): Statement[] {
    return chunks(records, maxRowsPerInsert).map((some) => this.#addRecords.for(some.map(toRecordRow)));
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
