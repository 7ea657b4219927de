/** Decides what each change of a batch does to the stock. Pure: no database, no clock. */
import { type Item, maxQuantity, type PetStatus } from "../../proto/pet.ts";

/** An entry as the table keeps it. A removed one stays as a tombstone, so that readers learn of the removal. */
export interface StockRow extends Item {
  readonly removed: boolean;
}

/** A change that a caller asks for, to one entry. */
export type Change =
  /** Sets the quantity, the status or both. With `expectedRevisions`, only while the entry is at one of them. */
  | {
      readonly kind: "update";
      readonly petId: bigint;
      readonly quantity?: number;
      readonly status?: PetStatus;
      readonly expectedRevisions?: readonly bigint[] | undefined;
    }
  /** Adds `delta`, which is not zero, to the quantity, once for each `requestId`. */
  | { readonly kind: "adjust"; readonly petId: bigint; readonly delta: number; readonly requestId: string }
  | { readonly kind: "create"; readonly petId: bigint; readonly quantity: number; readonly status: PetStatus }
  | { readonly kind: "remove"; readonly petId: bigint }
  /** Makes the entry or brings it to this state, as an import does. */
  | { readonly kind: "put"; readonly petId: bigint; readonly quantity: number; readonly status: PetStatus };

/** The result of a change. A refusal is a value that says why nothing was changed. */
export type Outcome =
  | { readonly kind: "done"; readonly item: Item }
  /** The adjustment was made before; the item is the entry as it left it then. */
  | { readonly kind: "replayed"; readonly item: Item }
  | { readonly kind: "not_found" }
  | { readonly kind: "already_exists" }
  | { readonly kind: "revision_mismatch"; readonly item: Item }
  /** The adjustment would take more than there is. */
  | { readonly kind: "insufficient_stock"; readonly item: Item }
  /** The adjustment would add more than a quantity can hold. */
  | { readonly kind: "quantity_overflow"; readonly item: Item }
  /** The request id belongs to another adjustment. */
  | { readonly kind: "request_id_reused" };

/** An adjustment that was made, as it is recorded to answer its repeats. */
export interface Adjustment {
  readonly requestId: string;
  readonly delta: number;
  /** The entry as the adjustment left it. */
  readonly item: Item;
}

/** What a batch comes to. */
export interface BatchResult {
  /** One for each change, in order. */
  readonly outcomes: readonly Outcome[];
  /** The rows to write: the latest state of every entry that changed. */
  readonly written: readonly StockRow[];
  /** The adjustments to record. */
  readonly adjusted: readonly Adjustment[];
  /** The revision of the stock after the last change. */
  readonly revision: bigint;
}

/** The stock before a batch, as far as the batch concerns it. */
export interface BatchInput {
  /** The entries that the changes name, tombstones included. */
  readonly rows: Iterable<StockRow>;
  /** The recorded adjustments of the request ids that the changes name. */
  readonly adjustments?: Iterable<Adjustment>;
  /** The revision of the stock before the first change. */
  readonly revision: bigint;
}

/**
 * Decides changes one after the other, as if each were alone. A change that changes something takes the next revision,
 * so that two states of an entry never share one. A change to what already holds takes none.
 */
export function decideChanges(input: BatchInput, changes: readonly Change[]): BatchResult {
  const batch = new Batch(input);
  const outcomes = changes.map((change) => batch.apply(change));
  return { outcomes, written: [...batch.written.values()], adjusted: batch.adjusted, revision: batch.revision };
}

class Batch {
  readonly written = new Map<bigint, StockRow>();
  readonly adjusted: Adjustment[] = [];
  revision: bigint;
  readonly #rows = new Map<bigint, StockRow>();
  readonly #adjustments = new Map<string, Adjustment>();

  constructor({ rows, adjustments = [], revision }: BatchInput) {
    this.revision = revision;
    for (const row of rows) this.#rows.set(row.petId, row);
    for (const adjustment of adjustments) this.#adjustments.set(adjustment.requestId, adjustment);
  }

  apply(change: Change): Outcome {
    const row = this.#rows.get(change.petId);
    const item = row?.removed ? undefined : row;
    switch (change.kind) {
      case "update":
        return item ? this.#update(item, change) : { kind: "not_found" };
      case "adjust":
        return this.#adjust(item, change);
      case "create":
        if (item) return { kind: "already_exists" };
        return this.#write({ petId: change.petId, quantity: change.quantity, status: change.status, removed: false });
      case "remove":
        return item ? this.#write({ ...item, removed: true }) : { kind: "not_found" };
      case "put":
        if (item?.quantity === change.quantity && item.status === change.status) return { kind: "done", item };
        return this.#write({ petId: change.petId, quantity: change.quantity, status: change.status, removed: false });
    }
  }

  #update(item: StockRow, change: Extract<Change, { kind: "update" }>): Outcome {
    const { quantity = item.quantity, status = item.status, expectedRevisions } = change;
    if (expectedRevisions?.includes(item.revision) === false) return { kind: "revision_mismatch", item };
    if (quantity === item.quantity && status === item.status) return { kind: "done", item };
    return this.#write({ ...item, quantity, status });
  }

  #adjust(item: StockRow | undefined, change: Extract<Change, { kind: "adjust" }>): Outcome {
    const { petId, delta, requestId } = change;
    // The first thing to check: a repeat gets the answer of the first time, whatever has become of the entry since.
    const first = this.#adjustments.get(requestId);
    if (first) {
      const isRepeat = first.item.petId === petId && first.delta === delta;
      return isRepeat ? { kind: "replayed", item: first.item } : { kind: "request_id_reused" };
    }
    if (!item) return { kind: "not_found" };
    const quantity = item.quantity + delta;
    if (quantity < 0) return { kind: "insufficient_stock", item };
    if (quantity > maxQuantity) return { kind: "quantity_overflow", item };
    const outcome = this.#write({ ...item, quantity });
    const adjustment = { requestId, delta, item: outcome.item };
    this.#adjustments.set(requestId, adjustment);
    this.adjusted.push(adjustment);
    return outcome;
  }

  #write(row: Omit<StockRow, "revision">): Extract<Outcome, { kind: "done" }> {
    this.revision += 1n;
    const item = { ...row, revision: this.revision };
    this.#rows.set(row.petId, item);
    this.written.set(row.petId, item);
    return { kind: "done", item };
  }
}
