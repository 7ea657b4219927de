/** Writes changes of the stock in one transaction, from its lock to its commit. */
import { setImmediate } from "node:timers/promises";
import type { Knex } from "knex";
import type { Position } from "../../proto/pet.ts";
import { isRetryable } from "../../runtime/database/database-errors.ts";
import { lostItsServer } from "../../runtime/database/open.ts";
import { matchedRows } from "../../runtime/database/statements.ts";
import { maxAttempts, Transaction } from "../../runtime/database/transactions.ts";
import { InvariantError } from "../../runtime/invariant.ts";
import { type Change, type ChangeGroup, type LedgerRow, type Outcome, onceOf } from "./change.ts";
import { type BatchInput, type BatchResult, decideChanges } from "./decide-changes.ts";
import { OutcomeUnknownError, StockUnavailableError } from "./stock-errors.ts";
import { fromRow, type OnceRow, type Row, toOnceRecord } from "./stock-rows.ts";
import type { WriteStatements } from "./stock-statements.ts";

/** Changes that a caller asks for, for as long as it wants them. */
export interface WriteRequest {
  readonly group: ChangeGroup;
  /** False once its call has ended or its time is over: then nothing of the group may be written any more. */
  readonly isWanted: () => boolean;
}

/** An outcome for each change of the requests that were written, in order. The others were not wanted any more. */
export type Written = ReadonlyMap<WriteRequest, readonly Outcome[]>;

interface WriteResult {
  readonly written: Written;
  /** The changes that were made, or happened once without an effect. */
  readonly recorded: readonly LedgerRow[];
  /** Of the stock after the write; undefined when no request was wanted. */
  readonly position?: Position;
}

/**
 * Writes changes in order. When this resolves they are durable.
 *
 * The transaction locks the counter row first. So writers queue there and nowhere else, revisions are committed in their
 * order, and whatever is read under the lock holds until the commit. The wait for the lock can take seconds, and a
 * caller that leaves meanwhile may send its next change through another service, which may get the lock first. So the
 * callers are asked under the lock whether they still want their changes.
 *
 * On MySQL a write takes two round trips: one locks and reads, the other writes and commits.
 *
 * @param onLocked gets the position of the stock under the lock; what it throws prevents the write
 * @throws StockUnavailableError, OutcomeUnknownError
 */
export async function writeWanted(
  db: Knex,
  statements: WriteStatements,
  requests: readonly WriteRequest[],
  onLocked: (before: Position) => void,
): Promise<WriteResult> {
  for (let failures = 1; ; failures++) {
    try {
      // Requests that nobody wants any more, as after an outage, need not wait for the lock.
      const wanted = requests.filter(({ isWanted }) => isWanted());
      return wanted.some(({ group }) => group.changes.length > 0)
        ? await writeOnce(db, statements, wanted, onLocked)
        : { written: new Map(wanted.map((request) => [request, []])), recorded: [] };
    } catch (error) {
      if (error instanceof OutcomeUnknownError || error instanceof InvariantError) throw error;
      const mayRetry = (failures === 1 && lostItsServer(error)) || isRetryable(error);
      if (!mayRetry || failures === maxAttempts) throw new StockUnavailableError(error);
    }
  }
}

async function writeOnce(
  db: Knex,
  statements: WriteStatements,
  requests: readonly WriteRequest[],
  onLocked: (before: Position) => void,
): Promise<WriteResult> {
  const transaction = await Transaction.open(db);
  try {
    const state = await lockAndRead(
      transaction,
      statements,
      requests.flatMap(({ group }) => group.changes),
    );
    onLocked({ epoch: state.epoch, revision: state.revision });
    await setImmediate(); // by then Node has read the cancellations that have arrived
    const wanted = requests.filter(({ isWanted }) => isWanted());
    if (wanted.length === 0) return { written: new Map(), recorded: [] };
    const result = decideChanges(
      state,
      wanted.map(({ group }) => group),
    );
    await commit(transaction, statements, result);
    const written = new Map(wanted.map((request, i) => [request, result.outcomes[i]!]));
    return { written, recorded: result.recorded, position: { epoch: state.epoch, revision: result.revision } };
  } finally {
    await transaction.end();
  }
}

/** Takes the lock, and reads what the changes meet, in one round trip. */
async function lockAndRead(
  transaction: Transaction,
  statements: WriteStatements,
  changes: readonly Change[],
): Promise<BatchInput & Position> {
  const [counters, rows, records = [], [lowest] = []] = (await transaction.run(
    statements.lockCounter,
    statements.entries(new Set(changes.map((change) => change.petId))),
    ...statements.records(new Set(changes.flatMap((change) => onceOf(change)?.id ?? []))),
  )) as [Position[], Row[], OnceRow[]?, { id: bigint | null }[]?];
  const [counter] = counters;
  if (!counter) throw noCounter();
  return {
    ...counter,
    rows: rows.map(fromRow),
    records: records.map(toOnceRecord),
    lowestId: lowest?.id && lowest.id < 0n ? lowest.id : 0n,
  };
}

/** @throws OutcomeUnknownError; any other error proves that nothing has happened */
async function commit(
  transaction: Transaction,
  statements: WriteStatements,
  { revision, written, recorded }: BatchResult,
): Promise<void> {
  try {
    const [advanced] = await transaction.commit(
      statements.advanceCounter(revision),
      ...statements.setEntries(written),
      ...statements.addToLedger(recorded),
    );
    if (matchedRows(advanced) !== 1) throw noCounter();
  } catch (error) {
    throw transaction.mayHaveHappened(error) ? new OutcomeUnknownError(error) : error;
  }
}

const noCounter = () => new Error("stock_head has no counter");
