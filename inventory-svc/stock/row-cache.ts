/** Remembers entries, so that a service that was the last to write need not read them. */
import { LRUCache } from "lru-cache";
import { type BatchInput, type Change, onceOf, type StockRow } from "./changes.ts";

/** The stock as a transaction meets it under the lock of the counter row. */
export interface LockedState extends BatchInput {
  /** The epoch that the revision belongs to. */
  readonly epoch: string;
}

/** Maximum entries in memory; those that were used last stay. */
const maxRows = 100_000;

/** Predictions begin after this many transactions in a row that found no change of another writer. */
const minTurnsAlone = 3;

/**
 * Remembers the entries as the last transactions left them. The counter of revisions proves them: while it stands where
 * the last transaction left it, no other writer has changed an entry, and the next transaction need not read any.
 */
export class RowCache {
  readonly #rows = new LRUCache<bigint, StockRow>({ max: maxRows });
  #epoch = "";
  #revision = -1n;
  /** Transactions in a row that found the counter where the one before had left it. */
  #turnsAlone = 0;

  /** True when the latest transaction found changes of another writer, and when nothing is known. */
  get mayHaveOtherWriters(): boolean {
    return this.#turnsAlone === 0;
  }

  /** The revision after the last transaction; -1n before the first one. */
  get revision(): bigint {
    return this.#revision;
  }

  /** Predicts the state that changes will meet. @returns undefined when it is not known, or not likely to be right */
  predict(changes: readonly Change[]): LockedState | undefined {
    if (this.#turnsAlone < minTurnsAlone) return undefined;
    const rows: StockRow[] = [];
    for (const change of changes) {
      const row = this.#rows.get(change.petId);
      if (row === undefined || onceOf(change)) return undefined; // only the database has all records
      rows.push(row);
    }
    return { epoch: this.#epoch, revision: this.#revision, rows };
  }

  /**
   * Remembers what a transaction found and left, once it is committed.
   *
   * @param rows the entries as it left them; of two states of one entry, the later one comes last
   */
  remember({ epoch, revision }: LockedState, rows: Iterable<StockRow>, newRevision: bigint): void {
    if (epoch === this.#epoch && revision === this.#revision) this.#turnsAlone += 1;
    else this.clear();
    if (this.#turnsAlone >= minTurnsAlone) for (const row of rows) this.#rows.set(row.petId, row);
    this.#epoch = epoch;
    this.#revision = newRevision;
  }

  /** Forgets everything after a fault or a change of another writer: the next transactions read. */
  clear(): void {
    this.#turnsAlone = 0;
    this.#epoch = "";
    if (this.#rows.size > 0) this.#rows.clear(); // clearing costs the same for one entry as for all
  }
}
