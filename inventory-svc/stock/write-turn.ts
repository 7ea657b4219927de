/** One transaction that writes changes of the stock, from its lock to its commit. */
import type { Knex } from "knex";
import { isOutOfRange, isRetryable } from "../../runtime/database/errors.ts";
import { lostItsServer } from "../../runtime/database/open.ts";
import { matchedRows } from "../../runtime/database/statements.ts";
import { maxAttempts, Transaction } from "../../runtime/database/transactions.ts";
import { type BatchResult, type Change, type ChangeGroup, decideChanges, type Outcome, onceOf } from "./changes.ts";
import { OutcomeUnknownError, StockUnavailableError } from "./errors.ts";
import type { LockedState, RowCache } from "./row-cache.ts";
import { type RecordRow, type Row, toRecord, toStockRow } from "./rows.ts";
import type { WriteStatements } from "./statements.ts";

/** What the turns of one store share. */
export interface WriteTurnOptions {
  readonly db: Knex;
  readonly statements: WriteStatements;
  readonly rowCache: RowCache;
}

/** The counter row as it was read under its lock. */
interface Counter {
  readonly epoch: string;
  readonly revision: bigint;
}

/**
 * A turn to write changes in one transaction. The transaction takes the lock on the counter row first, by reading or by
 * advancing it. So writers queue there and nowhere else, revisions are committed in their order, and whatever is read
 * under the lock holds until the commit.
 *
 * On MySQL a write takes two round trips: one locks and reads, the other writes and commits. It takes only the second
 * one where the row cache predicts all entries. The first statement then advances the counter from where the cache
 * expects it, and fails when another writer has moved it. `lock` takes a round trip of its own, before the other two.
 *
 * A caller disposes of its turn (`await using`), used or not.
 */
export class WriteTurn implements AsyncDisposable {
  readonly #options: WriteTurnOptions;
  #transaction: Transaction | undefined;
  /** Set while this turn has the lock. */
  #counter: Counter | undefined;
  #failures = 0;

  constructor(options: WriteTurnOptions) {
    this.#options = options;
  }

  /**
   * Waits for the lock. Without this call, `write` takes the lock with its first statements.
   *
   * @throws StockUnavailableError
   */
  async lock(): Promise<void> {
    await this.#retried(async (transaction) => {
      const [rows] = await transaction.run(this.#options.statements.lockCounter);
      this.#counter = counterOf(rows);
    });
  }

  /**
   * Writes changes in order, once for each turn. When this resolves they are durable.
   *
   * @returns for each group an outcome for each change, in order
   * @throws StockUnavailableError, OutcomeUnknownError
   */
  async write(groups: readonly ChangeGroup[]): Promise<readonly (readonly Outcome[])[]> {
    const changes = groups.flat();
    if (changes.length === 0) return groups.map(() => []);
    const { state, left, result } = await this.#retried(async (transaction) => {
      const mayPredict = this.#failures === 0 && this.#counter === undefined;
      const predicted = mayPredict ? this.#options.rowCache.predict(changes) : undefined;
      const state = predicted ?? (await this.#read(transaction, changes));
      const result = decideChanges(state, groups);
      await this.#commit(transaction, state, result, predicted !== undefined);
      const left = predicted ? result.written : [...state.rows, ...result.written];
      return { state, left, result };
    });
    this.#options.rowCache.remember(state, left, result.revision);
    return result.outcomes;
  }

  /** Releases the lock, and takes back what is not committed. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
  }

  /** Runs a step in the transaction, and again in a new one where the database has taken it back. */
  async #retried<T>(step: (transaction: Transaction) => Promise<T>): Promise<T> {
    for (;;) {
      try {
        this.#transaction ??= await Transaction.open(this.#options.db);
        return await step(this.#transaction);
      } catch (error) {
        this.#options.rowCache.clear();
        await this.#end();
        this.#failures += 1;
        if (error instanceof OutcomeUnknownError) throw error;
        if (error instanceof CounterMovedError) continue;
        const mayRepeat = (this.#failures === 1 && lostItsServer(error)) || isRetryable(error);
        if (!mayRepeat || this.#failures >= maxAttempts) throw new StockUnavailableError(error);
      }
    }
  }

  /** Reads what the changes meet, and takes the lock in the same round trip unless this turn has it. */
  async #read(transaction: Transaction, changes: readonly Change[]): Promise<LockedState> {
    const { statements } = this.#options;
    const results = await transaction.run(
      ...(this.#counter ? [] : [statements.lockCounter]),
      statements.entries(new Set(changes.map((change) => change.petId))),
      ...statements.records(new Set(changes.flatMap((change) => onceOf(change)?.id ?? []))),
    );
    this.#counter ??= counterOf(results.shift());
    const [rows, records = []] = results as [Row[], RecordRow[]?];
    return { ...this.#counter, rows: rows.map(toStockRow), records: records.map(toRecord) };
  }

  /** @throws CounterMovedError, OutcomeUnknownError; any other error proves that nothing has happened */
  async #commit(
    transaction: Transaction,
    state: LockedState,
    { revision, written, recorded }: BatchResult,
    isPredicted: boolean,
  ): Promise<void> {
    const { statements } = this.#options;
    try {
      const [advanced] = await transaction.commit(
        statements.advanceCounter(state, revision),
        ...statements.setEntries(written),
        ...statements.addRecords(recorded),
      );
      if (matchedRows(advanced) !== 1) throw noCounter();
    } catch (error) {
      if (isPredicted && isOutOfRange(error)) throw new CounterMovedError(error);
      throw transaction.mayHaveHappened(error) ? new OutcomeUnknownError(error) : error;
    }
  }

  async #end(): Promise<void> {
    const transaction = this.#transaction;
    this.#transaction = undefined;
    this.#counter = undefined;
    await transaction?.end();
  }
}

/** The counter is not where the row cache predicted it: another writer has changed the stock. Nothing has happened. */
class CounterMovedError extends Error {
  constructor(cause: unknown) {
    super("another writer has changed the stock", { cause });
    this.name = "CounterMovedError";
  }
}

/** @param rows that `lockCounter` gave */
function counterOf(rows: unknown): Counter {
  const [counter] = rows as Counter[];
  if (!counter) throw noCounter();
  return counter;
}

const noCounter = () => new Error("stock_head has no counter");
