/** The contract's rules for pets: the statuses, the bounds of ids and quantities, and their forms in text and gRPC. */
import { ChangeKind as WireKind, PetStatus as WireStatus } from "./gen/petstore/inventory/v1/inventory.ts";

/** The statuses, in the contract's order. */
export const petStatuses = ["available", "pending", "sold"] as const;
export type PetStatus = (typeof petStatuses)[number];

/** The bounds of a petId, which is any int64. */
export const minPetId = -(2n ** 63n);
export const maxPetId = 2n ** 63n - 1n;

/** The largest quantity: the largest int32. The smallest is 0. */
export const maxQuantity = 2_147_483_647;

/** The most revisions that an update or an adjustment may name as those that it expects. */
export const maxExpectedRevisions = 20;

/** The longest reason of a change, in code points, as JSON Schema and the databases count. */
export const maxReasonLength = 200;

/** Maximum changes that a caller sends together. */
export const maxGroupChanges = 100;

const reasonForm = new RegExp(`^[^\\p{Cc}\\p{Cs}]{1,${maxReasonLength}}$`, "u");

/**
 * Whether a text may be the reason of a change: neither empty nor too long, without control characters or lone
 * surrogates.
 */
export function isReason(text: string): boolean {
  return reasonForm.test(text);
}

/** An entry of the stock. */
export interface Item {
  /** Any int64. */
  readonly petId: bigint;
  /** 0 to 2147483647. */
  readonly quantity: number;
  readonly status: PetStatus;
  /** The revision of the stock that changed the entry last. */
  readonly revision: bigint;
}

/** An entry as callers and operators write it: the database gives it a revision. */
export type ItemInput = Omit<Item, "revision">;

/** The names of an entry's fields, in the order in which files have them. */
export const itemFields = ["petId", "quantity", "status"] as const satisfies readonly (keyof ItemInput)[];

/**
 * An entry, or what is left of a removed one for a while, so that readers of lists and changes learn of its removal.
 */
export interface ListedItem extends Item {
  /** The entry was removed, by `revision`; quantity and status are those that it had. */
  readonly removed: boolean;
}

/** A place in the history of the stock: everything up to `revision` of `epoch`. */
export interface Position {
  /** Names a series of revisions. A restored database starts a new one. */
  readonly epoch: string;
  readonly revision: bigint;
}

/** An integer in canonical form: no plus sign, no leading zero, no fraction. */
const canonical = /^(?:0|-?[1-9]\d{0,18})$/;

/** Parses a decimal petId. @returns undefined for a text that is not an int64 in canonical form */
export function parsePetId(text: string): bigint | undefined {
  if (!canonical.test(text)) return undefined;
  const petId = BigInt(text);
  return petId >= minPetId && petId <= maxPetId ? petId : undefined;
}

const wireStatuses: Readonly<Record<PetStatus, WireStatus>> = {
  available: WireStatus.PET_STATUS_AVAILABLE,
  pending: WireStatus.PET_STATUS_PENDING,
  sold: WireStatus.PET_STATUS_SOLD,
};

const statuses: ReadonlyMap<WireStatus, PetStatus> = new Map(petStatuses.map((name) => [wireStatuses[name], name]));

/** Returns the gRPC value of a status. */
export function toWireStatus(status: PetStatus): WireStatus {
  return wireStatuses[status];
}

/** Returns the status of a gRPC value. @returns undefined for the unspecified value and for unknown ones */
export function fromWireStatus(wire: WireStatus): PetStatus | undefined {
  return statuses.get(wire);
}

/** The kinds of changes in the ledger, by what they do to an entry. */
export type ChangeKind = "set" | "adjust" | "status" | "create" | "remove" | "import";

const wireKinds: Readonly<Record<ChangeKind, WireKind>> = {
  set: WireKind.CHANGE_KIND_SET,
  adjust: WireKind.CHANGE_KIND_ADJUST,
  status: WireKind.CHANGE_KIND_STATUS,
  create: WireKind.CHANGE_KIND_CREATE,
  remove: WireKind.CHANGE_KIND_REMOVE,
  import: WireKind.CHANGE_KIND_IMPORT,
};

const changeKinds: ReadonlyMap<WireKind, ChangeKind> = new Map(
  Object.entries(wireKinds).map(([name, wire]) => [wire, name as ChangeKind]),
);

/** Returns the gRPC value of a kind. */
export function toWireKind(kind: ChangeKind): WireKind {
  return wireKinds[kind];
}

/** Returns the kind of a gRPC value. @returns undefined for the unspecified value and for unknown ones */
export function fromWireKind(wire: WireKind): ChangeKind | undefined {
  return changeKinds.get(wire);
}
