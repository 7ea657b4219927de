/** Decides what each change of a batch does to the stock. Pure: no database, no clock. */
import { type Item, maxQuantity, type PetStatus } from "../../proto/pet.ts";

/** An entry as the table keeps it. A removed one stays as a tombstone, so that readers learn of the removal. */
export interface StockRow extends Item {
  readonly removed: boolean;
}

/** Makes a change happen once: its result is recorded, and a repeat gets it again. */
export interface Once {
  /** Names the change among those of all callers. */
  readonly id: string;
  /** Tells a repeat from another request that uses the same id. */
  readonly fingerprint: string;
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
      readonly once?: Once | undefined;
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
  /** The change was made before; the item is the entry as it left it then. */
  | { readonly kind: "replayed"; readonly item: Item }
  | { readonly kind: "not_found" }
  | { readonly kind: "already_exists" }
  | { readonly kind: "revision_mismatch"; readonly item: Item }
  /** The adjustment would take more than there is. */
  | { readonly kind: "insufficient_stock"; readonly item: Item }
  /** The adjustment would add more than a quantity can hold. */
  | { readonly kind: "quantity_overflow"; readonly item: Item }
  /** The id of this change, or of another one in its group, belongs to another request. */
  | { readonly kind: "id_reused" };

/** A change that was made, as it is recorded to answer its repeats. */
export interface OnceRecord extends Once {
  /** The entry as the change left it. */
  readonly item: Item;
}

/** What makes a change happen once; undefined for a change that happens each time. */
export function onceOf(change: Change): Once | undefined {
  if (change.kind === "adjust") return { id: change.requestId, fingerprint: String(change.delta) };
  return change.kind === "update" ? change.once : undefined;
}

/**
 * Changes of one caller. Each is decided alone, with one exception: if the id of one belongs to another request, or to
 * two changes of the group, all are refused.
 */
export type ChangeGroup = readonly Change[];

/** The result of a batch. */
export interface BatchResult {
  /** For each group, one for each change, in order. */
  readonly outcomes: readonly (readonly Outcome[])[];
  /** The rows to write: the latest state of every entry that changed. */
  readonly written: readonly StockRow[];
  /** What to record of the changes that happen once. */
  readonly recorded: readonly OnceRecord[];
  /** The revision of the stock after the last change. */
  readonly revision: bigint;
}

/** The stock before a batch, as far as the batch concerns it. */
export interface BatchInput {
  /** The entries that the changes name, tombstones included. */
  readonly rows: Iterable<StockRow>;
  /** The records of the ids that the changes name. */
  readonly records?: Iterable<OnceRecord>;
  /** The revision of the stock before the first change. */
  readonly revision: bigint;
}

/**
 * Decides changes one after the other, as if each were alone. A change that changes something takes the next revision,
 * so that two states of an entry never share one. A change that would leave everything as it is takes none.
 */
export function decideChanges(input: BatchInput, groups: readonly ChangeGroup[]): BatchResult {
  const batch = new Batch(input);
  const outcomes = groups.map((group) => batch.apply(group));
  return { outcomes, written: [...batch.written.values()], recorded: batch.recorded, revision: batch.revision };
}

class Batch {
  readonly written = new Map<bigint, StockRow>();
  readonly recorded: OnceRecord[] = [];
  revision: bigint;
  readonly #rows = new Map<bigint, StockRow>();
  readonly #records = new Map<string, OnceRecord>();

  constructor({ rows, records = [], revision }: BatchInput) {
    this.revision = revision;
    for (const row of rows) this.#rows.set(row.petId, row);
    for (const record of records) this.#records.set(record.id, record);
  }

  apply(group: ChangeGroup): Outcome[] {
    const ids = group.flatMap((change) => onceOf(change)?.id ?? []);
    const isReused = new Set(ids).size < ids.length || group.some((change) => this.#isReused(change));
    if (isReused) return group.map(() => ({ kind: "id_reused" }));
    return group.map((change) => {
      const once = onceOf(change);
      return once ? this.#decideOnce(change, once) : this.#decide(change);
    });
  }

  #isReused(change: Change): boolean {
    const once = onceOf(change);
    const first = once && this.#records.get(once.id);
    return first !== undefined && (first.fingerprint !== once?.fingerprint || first.item.petId !== change.petId);
  }

  /** A repeat gets the answer of the first time, whatever has become of the entry since. Refusals are not recorded. */
  #decideOnce(change: Change, once: Once): Outcome {
    const first = this.#records.get(once.id);
    if (first) return { kind: "replayed", item: first.item };
    const outcome = this.#decide(change);
    if (outcome.kind !== "done") return outcome;
    const record = { ...once, item: outcome.item };
    this.#records.set(once.id, record);
    this.recorded.push(record);
    return outcome;
  }

  #decide(change: Change): Outcome {
    const row = this.#rows.get(change.petId);
    const item = row?.removed ? undefined : row;
    switch (change.kind) {
      case "update":
        return item ? this.#update(item, change) : { kind: "not_found" };
      case "adjust":
        return item ? this.#adjust(item, change) : { kind: "not_found" };
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

  #adjust(item: StockRow, { delta }: Extract<Change, { kind: "adjust" }>): Outcome {
    const quantity = item.quantity + delta;
    if (quantity < 0) return { kind: "insufficient_stock", item };
    if (quantity > maxQuantity) return { kind: "quantity_overflow", item };
    return this.#write({ ...item, quantity });
  }

  #write(row: Omit<StockRow, "revision">): Extract<Outcome, { kind: "done" }> {
    this.revision += 1n;
    const item = { ...row, revision: this.revision };
    this.#rows.set(row.petId, item);
    this.written.set(row.petId, item);
    return { kind: "done", item };
  }
}
