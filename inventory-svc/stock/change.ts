/** Changes of the stock: what callers ask for, what becomes of it, and what the ledger keeps of it. */
import type { ChangeKind, Item, ItemInput, ListedItem, PetStatus } from "../../proto/pet.ts";

/** Makes a change happen once: its result is kept in the ledger, and a repeat gets it again. */
export interface Once {
  /** Names the change among those of all callers. */
  readonly id: string;
  /** Tells a repeat from another request that uses the same id. */
  readonly fingerprint: string;
  /** The id that an internal caller gave to an adjustment (`request_id`); undefined for any other change. */
  readonly adjustmentId?: string | undefined;
}

/** What a change of any kind has. */
interface AnyChange {
  readonly petId: bigint;
  /** Why its caller makes it, for the ledger. */
  readonly reason?: string | undefined;
}

/** A change without `once`: a repeat of it counts as another change. */
interface RepeatedChange extends AnyChange {
  readonly once?: undefined;
}

/** A change that can depend on the revision of its entry, and that can happen once. */
interface ConditionalChange extends AnyChange {
  readonly expectedRevisions?: readonly bigint[] | undefined;
  readonly once?: Once | undefined;
}

/** Sets the quantity, the status or both. */
export interface UpdateChange extends ConditionalChange {
  readonly kind: "update";
  readonly quantity?: number;
  readonly status?: PetStatus;
}

/** Adds `delta`, which is not zero, to the quantity. */
export interface AdjustChange extends ConditionalChange {
  readonly kind: "adjust";
  readonly delta: number;
}

/** A change that a caller asks for, to one entry. */
export type Change =
  | UpdateChange
  | AdjustChange
  | (RepeatedChange & { readonly kind: "create" } & ItemInput)
  | (RepeatedChange & { readonly kind: "remove" })
  /** Makes the entry or brings it to this state, as an import does. */
  | (RepeatedChange & { readonly kind: "put" } & ItemInput);

/** The actor of a change: an account, an internal caller or an operator. */
export type Actor =
  | { readonly kind: "account"; readonly account: string; readonly keyId: string }
  /** An internal caller, with the name and the role of its certificate where it has one. */
  | { readonly kind: "internal"; readonly role?: string; readonly name?: string }
  | { readonly kind: "operator" };

/** Where changes come from, for the ledger. */
export interface Origin {
  readonly actor: Actor;
  /** The id of the request they began with, by which their caller finds them in other logs. */
  readonly originRequestId?: string | undefined;
}

/**
 * Changes of one caller, written in one transaction. If the id of one belongs to another request, or to two changes of
 * the group, all are refused.
 */
export interface ChangeGroup {
  readonly changes: readonly Change[];
  readonly origin: Origin;
  /** Whether one refusal refuses all. Otherwise each change is decided alone. */
  readonly isAllOrNothing?: boolean;
}

/** The result of a change. A refusal is a value that says why nothing was changed. */
export type Outcome =
  | { readonly kind: "done"; readonly item: Item }
  /** The change was made before; the item is the entry as that left it. */
  | { readonly kind: "replayed"; readonly item: Item }
  | { readonly kind: "not_found" }
  | { readonly kind: "already_exists" }
  | { readonly kind: "revision_mismatch"; readonly item: Item }
  /** The adjustment would take more than there is. */
  | { readonly kind: "insufficient_stock"; readonly item: Item }
  /** The adjustment would add more than a quantity can hold. */
  | { readonly kind: "quantity_overflow"; readonly item: Item }
  /**
   * An id in its group belongs to another request or to two changes of the group, or only some records of the group
   * are still kept.
   */
  | { readonly kind: "id_reused" }
  /** Another change of its group, which is all or nothing, was refused. */
  | { readonly kind: "group_refused" };

/** A change that happens once, as it was made: it answers the repeats. */
export interface OnceRecord extends Once {
  /** The entry as the change left it. */
  readonly item: Item;
}

/** A change in the ledger. */
export interface LedgerChange {
  /** The revision that the change made. One that happens once and changed nothing has a number below 0 instead. */
  readonly id: bigint;
  readonly kind: ChangeKind;
  /** The entry before it; undefined when there was none. */
  readonly before: Pick<Item, "quantity" | "status"> | undefined;
  /** The entry after it. */
  readonly after: ListedItem;
  readonly once: Once | undefined;
  readonly reason: string | undefined;
  readonly origin: Origin;
}
