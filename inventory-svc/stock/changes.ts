import type { PetStatus, StockItem, StockRow } from "./item.ts";

/** What a caller wants done to one entry. */
export type Change =
  /** Sets the quantity, when the entry is at `expectedRevision` if one is given. */
  | { readonly kind: "update"; readonly petId: bigint; readonly quantity: number; readonly expectedRevision?: bigint }
  | { readonly kind: "create"; readonly petId: bigint; readonly quantity: number; readonly status: PetStatus }
  | { readonly kind: "remove"; readonly petId: bigint }
  /** Makes the entry or brings it to this state; what an import does. */
  | { readonly kind: "put"; readonly petId: bigint; readonly quantity: number; readonly status: PetStatus };

/** What became of a change. A refusal is a value: nothing was changed, and the caller is told why. */
export type Outcome =
  | { readonly kind: "done"; readonly item: StockItem }
  | { readonly kind: "not_found" }
  | { readonly kind: "already_exists" }
  | { readonly kind: "revision_mismatch"; readonly item: StockItem };

export interface Applied {
  /** One for each change, in order. */
  readonly outcomes: readonly Outcome[];
  /** The rows to write: the last state of every entry that changed. */
  readonly written: readonly StockRow[];
  /** The revision of the stock after the last change. */
  readonly revision: bigint;
}

/**
 * Applies changes one after the other, as if each were alone. Every change that changes something takes the next
 * revision, so that two states of an entry never share one; a change to what already holds takes none.
 *
 * @param rows the entries that the changes name, tombstones included, as they stand
 * @param revision the revision of the stock before the first change
 */
export function applyChanges(rows: Iterable<StockRow>, changes: readonly Change[], revision: bigint): Applied {
  const current = new Map<bigint, StockRow>();
  for (const row of rows) current.set(row.petId, row);
  const written = new Map<bigint, StockRow>();
  let head = revision;

  const write = (row: Omit<StockRow, "revision">): Outcome => {
    head += 1n;
    const next = { ...row, revision: head };
    current.set(row.petId, next);
    written.set(row.petId, next);
    return { kind: "done", item: next };
  };

  const apply = (change: Change): Outcome => {
    const row = current.get(change.petId);
    const item = row?.removed ? undefined : row;
    switch (change.kind) {
      case "update":
        if (!item) return { kind: "not_found" };
        if (change.expectedRevision !== undefined && change.expectedRevision !== item.revision) {
          return { kind: "revision_mismatch", item };
        }
        return item.quantity === change.quantity
          ? { kind: "done", item }
          : write({ ...item, quantity: change.quantity });
      case "create":
        if (item) return { kind: "already_exists" };
        return write({ petId: change.petId, quantity: change.quantity, status: change.status, removed: false });
      case "remove":
        return item ? write({ ...item, removed: true }) : { kind: "not_found" };
      case "put":
        if (item?.quantity === change.quantity && item.status === change.status) return { kind: "done", item };
        return write({ petId: change.petId, quantity: change.quantity, status: change.status, removed: false });
    }
  };
  const outcomes = changes.map(apply);
  return { outcomes, written: [...written.values()], revision: head };
}
