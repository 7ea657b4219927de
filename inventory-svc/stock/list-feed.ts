/** Reads the list for all gateways that load it at about the same time. */
import type { ListedItem, Position } from "../../proto/pet.ts";
import { invariant } from "../../runtime/invariant.ts";
import { TooManyAtOnceError } from "./stock-errors.ts";
import type { StockStore } from "./stock-store.ts";

/** A page of the list. */
export interface ListFeedPage {
  /** The position of the stock before the first page was read. The same in every page. */
  readonly position: Position;
  /** Entries and tombstones, in the order of petId. */
  readonly rows: readonly ListedItem[];
}

interface SharedRows {
  readonly rows: Promise<readonly ListedItem[]>;
  /** The number of the latest load that had begun when these rows began to be read. */
  readonly load: number;
}

/** Maximum loads at once: each may hold a page that its caller has not read yet. */
const maxLoads = 200;

/** Pages that are kept for the loads that follow. */
const maxKept = 64;

/**
 * Lets loads of the list share reads. A load uses rows that were read for another one if their read began after the
 * load did, so its list is as new as if it had read everything itself. A load that begins later takes what an earlier
 * one has read since then, without a read of its own, and so catches up with it. Each load goes at its own pace: a slow
 * one holds up no other.
 */
export class ListFeed {
  readonly #store: Pick<StockStore, "position" | "rowsAfter">;
  readonly #limit: number;
  /** Rows by the petId before them, the latest last. */
  readonly #kept = new Map<bigint | undefined, SharedRows>();
  #begun = 0;
  #running = 0;

  /** @param limit maximum rows of a page */
  constructor(store: Pick<StockStore, "position" | "rowsAfter">, limit: number) {
    this.#store = store;
    this.#limit = limit;
  }

  /**
   * Loads the list. The first page is empty and comes before any row is read.
   *
   * @param after the petId after which to begin; undefined for the whole list
   * @throws StockUnavailableError, TooManyAtOnceError
   */
  async *load(after: bigint | undefined): AsyncGenerator<ListFeedPage> {
    if (this.#running >= maxLoads) throw new TooManyAtOnceError("lists");
    this.#running += 1;
    try {
      const position = await this.#store.position();
      const load = ++this.#begun;
      yield { position, rows: [] };
      let from = after;
      for (let isFull = true; isFull; ) {
        const rows = await this.#rowsAfter(from, load);
        if (rows.length > 0) yield { position, rows };
        isFull = rows.length === this.#limit;
        from = rows.at(-1)?.petId;
      }
    } finally {
      this.#running -= 1;
      if (this.#running === 0) this.#kept.clear();
    }
  }

  #rowsAfter(after: bigint | undefined, load: number): Promise<readonly ListedItem[]> {
    const known = this.#kept.get(after);
    if (known && known.load >= load) return known.rows;
    const shared = { rows: this.#read(after), load: this.#begun };
    this.#kept.delete(after);
    this.#kept.set(after, shared);
    if (this.#kept.size > maxKept) this.#kept.delete(this.#kept.keys().next().value);
    // A load that comes here later reads for itself: the database may be back by then.
    shared.rows.catch(() => this.#kept.get(after) === shared && this.#kept.delete(after));
    return shared.rows;
  }

  async #read(after: bigint | undefined): Promise<readonly ListedItem[]> {
    const rows = await this.#store.rowsAfter(after, this.#limit);
    invariant(isAscending(after, rows), "a list is in the order of petId");
    return rows;
  }
}

/** Whether rows follow a petId, and each other, in the order of petId. */
function isAscending(after: bigint | undefined, rows: readonly ListedItem[]): boolean {
  let last = after;
  for (const { petId } of rows) {
    if (last !== undefined && petId <= last) return false;
    last = petId;
  }
  return true;
}
