import { LRUCache } from "lru-cache";
import type { Change, Standing } from "./changes.ts";
import type { StockRow } from "./item.ts";

/** What changes meet, and the line of revisions that it belongs to. */
export interface Found extends Standing {
  readonly epoch: string;
}

/** Entries that are kept, those that were used last; each takes some 250 bytes. */
const maxRows = 100_000;

/** So many transactions in a row have to find nothing of others before one relies on that. */
const enoughAlone = 3;

/**
 * The entries as the last transaction left them. The counter of revisions proves them: while the stock is still at the
 * revision at which that transaction left it, nobody has changed any, and the next one need not read them.
 */
export class LastState {
  readonly #rows = new LRUCache<bigint, StockRow>({ max: maxRows });
  #epoch = "";
  #revision = -1n;
  /** Transactions in a row that found the stock where the one before had left it: where others write too, few. */
  #alone = 0;

  /** Others write too: the last transaction found something of theirs, or nothing is known. */
  get isShared(): boolean {
    return this.#alone === 0;
  }

  /** What these changes will meet, if nobody else writes; undefined when it is not known or not likely. */
  expect(changes: readonly Change[]): Found | undefined {
    if (this.#alone < enoughAlone) return undefined;
    const rows: StockRow[] = [];
    for (const { kind, petId } of changes) {
      const row = this.#rows.get(petId);
      if (row === undefined || kind === "adjust") return undefined; // only the database remembers all adjustments
      rows.push(row);
    }
    return { epoch: this.#epoch, revision: this.#revision, rows };
  }

  /**
   * Takes what a transaction has found, once it is committed.
   *
   * @param rows entries as it left them; of two states of one the later
   */
  learn({ epoch, revision }: Found, rows: Iterable<StockRow>, newRevision: bigint): void {
    if (epoch === this.#epoch && revision === this.#revision) this.#alone += 1;
    else this.forget();
    if (this.#alone >= enoughAlone) for (const row of rows) this.#rows.set(row.petId, row);
    this.#epoch = epoch;
    this.#revision = newRevision;
  }

  /** Somebody else has written, or something went wrong: the next transactions read. */
  forget(): void {
    this.#alone = 0;
    this.#epoch = "";
    if (this.#rows.size > 0) this.#rows.clear(); // which costs the same for one entry as for all
  }
}
