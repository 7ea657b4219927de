/** Writes changes of the stock in one transaction, from its lock to its commit. */
import { setImmediate } from "node:timers/promises";
import type { Knex } from "knex";
import type { ListedItem, Position } from "../../proto/pet.ts";
import { isTransient } from "../../runtime/database/database-errors.ts";
import { refuseWrongServer, type ServerRow, serverColumns } from "../../runtime/database/old-primary.ts";
import { wasServerLost } from "../../runtime/database/open.ts";
import {
  clockMsSql,
  matchedRows,
  maxAttempts,
  RowsStatement,
  type Statement,
  statementOf,
  Transaction,
} from "../../runtime/database/statements.ts";
import { InvariantError } from "../../runtime/invariant.ts";
import type { Change, ChangeGroup, LedgerChange, Outcome } from "./change.ts";
import { type BatchInput, type BatchResult, decideChanges } from "./decide-changes.ts";
import { OutcomeUnknownError, StockUnavailableError } from "./stock-errors.ts";
import {
  type EntryRow,
  entryColumns,
  fromEntryRow,
  fromOnceRow,
  ledgerColumns,
  ledgerTable,
  type OnceRow,
  onceColumns,
  toEntryRow,
  toLedgerRow,
} from "./stock-rows.ts";

/** Changes that a caller asks for, and whether it still wants them. */
export interface WriteRequest {
  readonly group: ChangeGroup;
  /** False once its call has ended or its time is over: from then on nothing of the group may be decided. */
  readonly isWanted: () => boolean;
}

/** An outcome for each change of the requests that were written, in order. The others were not wanted any more. */
export type Written = ReadonlyMap<WriteRequest, readonly Outcome[]>;

interface WriteResult {
  readonly written: Written;
  /** The changes that were made, and those that happen once and changed nothing. */
  readonly ledgerChanges: readonly LedgerChange[];
  /** The position of the stock after the write; undefined when no request was wanted. */
  readonly position?: Position;
}

/**
 * Writes changes in order. When this resolves they are durable.
 *
 * The transaction locks the head of the stock first. So writers queue there and nowhere else, revisions are committed
 * in their order, and whatever is read under the lock holds until the commit. The wait for the lock can take seconds,
 * and a caller that leaves meanwhile may send its next change through another service, which may get the lock first. So
 * the callers are asked under the lock whether they still want their changes.
 *
 * On MySQL, but for Galera, a write takes two round trips: one locks and reads, the other writes and commits.
 *
 * @param onLocked gets the position of the stock under the lock; what it throws prevents the write
 * @throws StockUnavailableError, OutcomeUnknownError
 */
export async function writeInTransaction(
  db: Knex,
  statements: WriteStatements,
  requests: readonly WriteRequest[],
  onLocked: (before: Position) => void,
): Promise<WriteResult> {
  for (let failures = 1; ; failures++) {
    try {
      // Requests whose callers have left, as after an outage, need not wait for the lock.
      const wanted = requests.filter(({ isWanted }) => isWanted());
      return wanted.some(({ group }) => group.changes.length > 0)
        ? await tryWrite(db, statements, wanted, onLocked)
        : { written: new Map(wanted.map((request) => [request, []])), ledgerChanges: [] };
    } catch (error) {
      if (error instanceof OutcomeUnknownError || error instanceof InvariantError) throw error;
      const mayRetry = (failures === 1 && wasServerLost(error)) || isTransient(error);
      if (!mayRetry || failures === maxAttempts) throw new StockUnavailableError(error);
    }
  }
}

async function tryWrite(
  db: Knex,
  statements: WriteStatements,
  requests: readonly WriteRequest[],
  onLocked: (before: Position) => void,
): Promise<WriteResult> {
  const transaction = await Transaction.open(db);
  try {
    const state = await lockAndRead(
      db,
      transaction,
      statements,
      requests.flatMap(({ group }) => group.changes),
    );
    onLocked({ epoch: state.epoch, revision: state.revision });
    await setImmediate(); // by then Node has read the cancellations that have arrived
    const wanted = requests.filter(({ isWanted }) => isWanted());
    if (wanted.length === 0) return { written: new Map(), ledgerChanges: [] };
    const result = decideChanges(
      state,
      wanted.map(({ group }) => group),
    );
    await commit(transaction, statements, result);
    const written = new Map(wanted.map((request, i) => [request, result.outcomes[i]!]));
    return {
      written,
      ledgerChanges: result.ledgerChanges,
      position: { epoch: state.epoch, revision: result.revision },
    };
  } finally {
    await transaction.end();
  }
}

/** Takes the lock on the server that takes the writes, and reads what the changes meet. */
async function lockAndRead(
  db: Knex,
  transaction: Transaction,
  statements: WriteStatements,
  changes: readonly Change[],
): Promise<BatchInput & Position> {
  const [heads, rows, records = [], [lowest] = []] = (await transaction.run(
    statements.lockHead,
    statements.entries(new Set(changes.map((change) => change.petId))),
    ...statements.recordsAndLowestId(new Set(changes.flatMap((change) => change.once?.id ?? []))),
  )) as [(Position & ServerRow)[], EntryRow[], OnceRow[]?, { id: bigint | null }[]?];
  const [head] = refuseWrongServer(db, heads);
  if (!head) throw noHead();
  return {
    epoch: head.epoch,
    revision: head.revision,
    rows: rows.map(fromEntryRow),
    records: records.map(fromOnceRow),
    lowestId: lowest?.id && lowest.id < 0n ? lowest.id : 0n,
  };
}

/** @throws OutcomeUnknownError; any other error proves that nothing has happened */
async function commit(
  transaction: Transaction,
  statements: WriteStatements,
  { revision, rowsToWrite, ledgerChanges }: BatchResult,
): Promise<void> {
  try {
    const [advanced] = await transaction.commit(
      statements.advanceHead(revision),
      ...statements.setEntries(rowsToWrite),
      ...statements.addToLedger(ledgerChanges),
    );
    if (matchedRows(advanced) !== 1) throw noHead();
  } catch (error) {
    throw transaction.mayHaveHappened(error) ? new OutcomeUnknownError(error) : error;
  }
}

const noHead = () => new Error("stock_head has no row");

/** Knex writes an insert of many rows for SQLite as a compound SELECT, which may have 500 terms. */
const maxRowsPerInsert = 500;

/** The statements of a write, between BEGIN and COMMIT, with their texts made once. */
export class WriteStatements {
  /** Locks the head and reads it. On SQLite, BEGIN has taken the lock already. */
  readonly lockHead: Statement;
  readonly #advanceHead: Statement;
  readonly #entries: RowsStatement<"pet_id">;
  readonly #setEntries: RowsStatement<(typeof entryColumns)[number]>;
  readonly #records: RowsStatement<"once_id">;
  readonly #lowestId: Statement;
  readonly #addToLedger: RowsStatement<(typeof ledgerColumns)[number]>;
  readonly #keepsHistory: boolean;

  /** @param keepsHistory whether the ledger keeps every change, or only those that answer repeats */
  constructor(db: Knex, keepsHistory: boolean) {
    this.#keepsHistory = keepsHistory;
    const head = () => db("stock_head").where("id", db.raw("1"));
    this.lockHead = statementOf(head().select(serverColumns(db), "epoch", "revision").forUpdate());
    this.#advanceHead = statementOf(head().update({ revision: 0, writes: db.raw("writes + 1") }));
    this.#entries = selectBy(db, "pet_id", "stock", entryColumns);
    this.#setEntries = new RowsStatement(entryColumns, (rows) => db("stock").insert(rows).onConflict("pet_id").merge());
    this.#records = selectBy(db, "once_id", ledgerTable, onceColumns);
    this.#lowestId = statementOf(db(ledgerTable).min("id as id"));
    const made_at = db.raw(clockMsSql(db));
    this.#addToLedger = new RowsStatement(ledgerColumns, (rows) => {
      return db(ledgerTable).insert(rows.map((row) => ({ ...row, made_at })));
    });
  }

  /**
   * Moves the head on, while it is locked. It changes the row even where the revision stays. Where several servers take
   * writes, two writes that overlap then conflict, so an older one never commits after a newer one was acknowledged.
   */
  advanceHead(to: bigint): Statement {
    return { sql: this.#advanceHead.sql, bindings: [to] };
  }

  /** Reads these entries, tombstones included. */
  entries(petIds: Iterable<bigint>): Statement {
    return this.#entries.for(Array.from(petIds, (pet_id) => ({ pet_id })));
  }

  setEntries(rows: readonly ListedItem[]): Statement[] {
    return slicesOf(rows, maxRowsPerInsert).map((some) => this.#setEntries.for(some.map(toEntryRow)));
  }

  /** Reads the records of these once ids, and the lowest id of the ledger. @returns no statement without once ids */
  recordsAndLowestId(ids: ReadonlySet<string>): Statement[] {
    const rows = Array.from(ids, (once_id) => ({ once_id }));
    return rows.length === 0 ? [] : [this.#records.for(rows), this.#lowestId];
  }

  addToLedger(changes: readonly LedgerChange[]): Statement[] {
    const kept = this.#keepsHistory ? changes : changes.filter(({ once }) => once);
    return slicesOf(kept, maxRowsPerInsert).map((some) => this.#addToLedger.for(some.map(toLedgerRow)));
  }
}

/** Reads the rows that have one of these values in a column. */
function selectBy<Column extends string>(db: Knex, column: Column, table: string, selected: readonly string[]) {
  return new RowsStatement([column], (rows) => {
    const values = rows.map((row) => row[column]);
    return db(table).select(selected).whereIn(column, values);
  });
}

function slicesOf<T>(values: readonly T[], size: number): T[][] {
  const result: T[][] = [];
  for (let i = 0; i < values.length; i += size) result.push(values.slice(i, i + size));
  return result;
}
