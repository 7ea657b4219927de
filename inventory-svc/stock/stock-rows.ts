/** Rows of the stock's tables, and the values that they stand for. */
import type { ChangeKind, Item, ListedItem, PetStatus } from "../../proto/pet.ts";
import type { Actor, LedgerChange, OnceRecord, Origin } from "./change.ts";

/** The columns of an entry, which the stock and the ledger both have. */
const itemColumns = ["pet_id", "quantity", "status"] as const;

interface ItemRow {
  pet_id: bigint;
  quantity: number | bigint;
  status: string;
  revision: bigint;
}

function toItem(row: ItemRow): Item {
  return {
    petId: row.pet_id,
    quantity: Number(row.quantity),
    status: row.status as PetStatus,
    revision: row.revision,
  };
}

/** An entry as the drivers give it. */
export interface EntryRow extends ItemRow {
  removed: number | bigint;
}

export const entryColumns = [...itemColumns, "revision", "removed"] as const;

export function fromEntryRow(row: EntryRow): ListedItem {
  return { ...toItem(row), removed: Boolean(Number(row.removed)) };
}

/** An entry as a row to insert. */
export function toEntryRow({ petId, removed, ...row }: ListedItem) {
  return { ...row, pet_id: petId, removed: removed ? 1 : 0 };
}

/**
 * The table of the ledger, which keeps every change (without history, only those that happen once) and answers repeats.
 */
export const ledgerTable = "stock_ledger";

/** The index of the ledger by entry and id. */
export const petIndex = "stock_ledger_pet_index";

/** The columns that answer a repeat. */
export const onceColumns = ["once_id", "fingerprint", ...itemColumns, "id", "found_revision"] as const;

/** A record that answers a repeat, as the drivers give it. */
export interface OnceRow extends Omit<ItemRow, "revision"> {
  once_id: string;
  fingerprint: string;
  id: bigint;
  found_revision: bigint | null;
}

export function fromOnceRow({ once_id: id, fingerprint, ...row }: OnceRow): OnceRecord {
  return { id, fingerprint, item: toItem({ ...row, revision: row.found_revision ?? row.id }) };
}

/** The columns that the history shows of a change. */
export const historyColumns = [
  "id",
  "pet_id",
  "kind",
  "quantity_before",
  "quantity",
  "status_before",
  "status",
  "made_at",
  "actor",
  "account",
  "name",
  "request_id",
  "reason",
] as const;

/** The columns of the ledger but for the time, which the database fills in. */
export const ledgerColumns = [
  ...historyColumns.filter((column) => column !== "made_at"),
  "once_id",
  "fingerprint",
  "found_revision",
] as const;

/** A change of the past, as `StockHistory` reads it: a `PastChange` of the contract and of the client. */
export interface HistoryChange {
  readonly petId: bigint;
  /** The revision that it made. */
  readonly revision: bigint;
  readonly kind: ChangeKind;
  /** Undefined when there was no entry before it. */
  readonly before: Pick<Item, "quantity" | "status"> | undefined;
  /** Undefined when there was no entry after it. */
  readonly after: Pick<Item, "quantity" | "status"> | undefined;
  /** Unix milliseconds by the clock of the database. */
  readonly madeAtMs: number;
  readonly origin: Origin;
  readonly reason: string | undefined;
}

/** A change of the past as the drivers give it. */
export interface HistoryRow {
  id: bigint;
  pet_id: bigint;
  kind: ChangeKind;
  quantity_before: number | bigint | null;
  quantity: number | bigint | null;
  status_before: PetStatus | null;
  status: PetStatus | null;
  made_at: bigint | number;
  actor: Actor["kind"];
  account: string | null;
  name: string | null;
  request_id: string | null;
  reason: string | null;
}

export function fromHistoryRow(row: HistoryRow): HistoryChange {
  return {
    petId: row.pet_id,
    revision: row.id,
    kind: row.kind,
    before: stateOf(row.quantity_before, row.status_before),
    after: stateOf(row.quantity, row.status),
    madeAtMs: Number(row.made_at),
    origin: { actor: actorOf(row), originRequestId: row.request_id ?? undefined },
    reason: row.reason ?? undefined,
  };
}

function stateOf(quantity: number | bigint | null, status: PetStatus | null) {
  return quantity === null || status === null ? undefined : { quantity: Number(quantity), status };
}

/** Reads the actor. For an internal caller, `name` is the role and name of its certificate: no role has a space. */
function actorOf({ actor, account, name }: HistoryRow): Actor {
  if (actor === "account") return { kind: actor, account: account ?? "", keyId: name ?? "" };
  if (actor === "operator" || name === null) return { kind: actor };
  const [role = "", ...rest] = name.split(" ");
  return { kind: actor, role, name: rest.join(" ") };
}

/** A change as a row to insert, without the time. */
export function toLedgerRow({ id, kind, before, after, once, reason, origin }: LedgerChange) {
  const { actor, originRequestId } = origin;
  return {
    id,
    pet_id: after.petId,
    kind,
    quantity_before: before?.quantity ?? null,
    quantity: after.removed ? null : after.quantity,
    status_before: before?.status ?? null,
    status: after.removed ? null : after.status,
    actor: actor.kind,
    account: actor.kind === "account" ? actor.account : null,
    name: nameOf(actor),
    request_id: originRequestId ?? null,
    reason: reason ?? null,
    once_id: once?.id ?? null,
    fingerprint: once?.fingerprint ?? null,
    found_revision: id < 0n ? after.revision : null,
  };
}

/** The longest name that the table takes. */
const maxNameLength = 255;

function nameOf(actor: Actor): string | null {
  if (actor.kind === "account") return actor.keyId;
  if (actor.kind === "operator" || actor.name === undefined) return null;
  return `${actor.role} ${actor.name}`.slice(0, maxNameLength);
}
