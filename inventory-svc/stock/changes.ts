import { maxQuantity, type PetStatus, type StockItem, type StockRow } from "./item.ts";

/** What a caller wants done to one entry. */
export type Change =
  /** Sets the quantity, the status or both, when the entry is at `expectedRevision` if one is given. */
  | {
      readonly kind: "update";
      readonly petId: bigint;
      readonly quantity?: number;
      readonly status?: PetStatus;
      readonly expectedRevision?: bigint;
    }
  /** Adds `delta`, which is not zero, to the quantity: once for each `requestId`. */
  | { readonly kind: "adjust"; readonly petId: bigint; readonly delta: number; readonly requestId: string }
  | { readonly kind: "create"; readonly petId: bigint; readonly quantity: number; readonly status: PetStatus }
  | { readonly kind: "remove"; readonly petId: bigint }
  /** Makes the entry or brings it to this state; what an import does. */
  | { readonly kind: "put"; readonly petId: bigint; readonly quantity: number; readonly status: PetStatus };

/** What became of a change. A refusal is a value: nothing was changed, and the caller is told why. */
export type Outcome =
  | { readonly kind: "done"; readonly item: StockItem }
  /** An adjustment that was made before; with the entry as it left it then. */
  | { readonly kind: "replayed"; readonly item: StockItem }
  | { readonly kind: "not_found" }
  | { readonly kind: "already_exists" }
  | { readonly kind: "revision_mismatch"; readonly item: StockItem }
  /** The adjustment would take more than there is, or add more than fits. */
  | { readonly kind: "insufficient_stock"; readonly item: StockItem }
  | { readonly kind: "quantity_overflow"; readonly item: StockItem }
  /** The request id is that of another adjustment. */
  | { readonly kind: "request_id_reused" };

/** An adjustment that was made, as it is remembered for who repeats it. */
export interface Adjustment {
  readonly requestId: string;
  readonly delta: number;
  /** The entry as the adjustment left it. */
  readonly item: StockItem;
}

export interface Applied {
  /** One for each change, in order. */
  readonly outcomes: readonly Outcome[];
  /** The rows to write: the last state of every entry that changed. */
  readonly written: readonly StockRow[];
  /** The adjustments to remember. */
  readonly adjusted: readonly Adjustment[];
  /** The revision of the stock after the last change. */
  readonly revision: bigint;
}

/** What the changes of a batch meet. */
export interface Standing {
  /** The entries that the changes name, tombstones included. */
  readonly rows: Iterable<StockRow>;
  /** What is remembered of the request ids that the changes name. */
  readonly adjustments?: Iterable<Adjustment>;
  /** The revision of the stock before the first change. */
  readonly revision: bigint;
}

/**
 * Applies changes one after the other, as if each were alone. Every change that changes something takes the next
 * revision, so that two states of an entry never share one; a change to what already holds takes none.
 */
export function applyChanges(standing: Standing, changes: readonly Change[]): Applied {
  const batch = new Batch(standing);
  const outcomes = changes.map((change) => batch.apply(change));
  return { outcomes, written: [...batch.written.values()], adjusted: batch.adjusted, revision: batch.revision };
}

class Batch {
  readonly written = new Map<bigint, StockRow>();
  readonly adjusted: Adjustment[] = [];
  revision: bigint;
  readonly #rows = new Map<bigint, StockRow>();
  readonly #adjustments = new Map<string, Adjustment>();

  constructor({ rows, adjustments = [], revision }: Standing) {
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
    const { quantity = item.quantity, status = item.status, expectedRevision = item.revision } = change;
    if (expectedRevision !== item.revision) return { kind: "revision_mismatch", item };
    if (quantity === item.quantity && status === item.status) return { kind: "done", item };
    return this.#write({ ...item, quantity, status });
  }

  #adjust(item: StockRow | undefined, change: Extract<Change, { kind: "adjust" }>): Outcome {
    const { petId, delta, requestId } = change;
    // Looked at first: the answer to a repeat is that of the first time, whatever became of the entry since.
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
