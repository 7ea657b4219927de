import { LRUCache } from "lru-cache";
import type { Change, Standing } from "./changes.ts";
import type { StockRow } from "./item.ts";

/** What changes meet, and the line of revisions that it belongs to. */
export interface Found extends Standing {
  readonly epoch: string;
}

/** Entries that are kept; each takes some 250 bytes. */
const maxRows = 100_000;

/**
 * The entries as the last transaction left them. The counter of revisions proves them: while the stock is still at the
 * revision at which that transaction left it, nobody has changed any, and the next one need not read them.
 */
export class LastState {
  readonly #rows = new LRUCache<bigint, StockRow>({ max: maxRows });
  #epoch = "";
  #revision = -1n;
  /** The last transaction found the stock where the one before had left it. Where others write too, it mostly has not. */
  #isAlone = false;

  /** What these changes will meet, if nobody else writes; undefined when it is not known or not likely. */
  expect(changes: readonly Change[]): Found | undefined {
    if (!this.#isAlone) return undefined;
    const rows: StockRow[] = [];
    for (const { kind, petId } of changes) {
      const row = this.#rows.get(petId);
      if (row === undefined || kind === "adjust") return undefined; // only the database remembers all adjustments
      rows.push(row);
    }
    return { epoch: this.#epoch, revision: this.#revision, rows };
  }

  /** Takes what a transaction found and what it wrote, once it is committed. */
  learn({ epoch, revision, rows }: Found, written: readonly StockRow[], newRevision: bigint): void {
    this.#isAlone = epoch === this.#epoch && revision === this.#revision;
    if (!this.#isAlone) this.#rows.clear();
    for (const row of rows) this.#rows.set(row.petId, row);
    for (const row of written) this.#rows.set(row.petId, row);
    this.#epoch = epoch;
    this.#revision = newRevision;
  }

  /** Somebody else has written: the next transaction reads. */
  doubt(): void {
    this.#isAlone = false;
  }
}
