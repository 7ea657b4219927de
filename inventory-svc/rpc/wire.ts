/** Between messages of the contract and values of the stock. */
import { hash } from "node:crypto";
import {
  type AdjustInventoryRequest,
  type Change,
  type ChangeGroup,
  type IdempotencyKey,
  type InventoryItem,
  type UpdateInventoryRequest,
  PetStatus as WireStatus,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import {
  fromWireStatus,
  type Item,
  maxExpectedRevisions,
  maxQuantity,
  type PetStatus,
  toWireStatus,
} from "../../proto/pet.ts";
import type { Change as StockChange } from "../stock/decide-changes.ts";
import { RpcError } from "./rpc-error.ts";

/** Entries in one message: about 20 KiB, far below the 4 MiB that a gRPC client accepts. */
export const entriesPerMessage = 1_000;

export function toWireItem(item: Item & { readonly removed?: boolean }): InventoryItem {
  const { petId, quantity, status, revision, removed = false } = item;
  return { petId, quantity, status: toWireStatus(status), revision, removed };
}

/** @throws RpcError INVALID_FIELD when it is missing or negative; int32 bounds it above */
export function readQuantity(quantity: number | undefined): number {
  if (quantity === undefined) throw invalid("quantity", "is required");
  if (quantity < 0) throw invalid("quantity", `must be from 0 to ${maxQuantity}`);
  return quantity;
}

/**
 * @throws RpcError INVALID_FIELD for a value that the contract does not have, and for a missing one without a default
 */
export function readStatus(wire: WireStatus, byDefault?: PetStatus): PetStatus {
  if (wire === WireStatus.PET_STATUS_UNSPECIFIED && byDefault) return byDefault;
  const status = fromWireStatus(wire);
  if (status === undefined) throw invalid("status", "must be a PetStatus");
  return status;
}

/** @throws RpcError INVALID_FIELD when it is missing or zero, which is certainly a mistake */
function readDelta(delta: number | undefined): number {
  if (delta === undefined) throw invalid("delta", "is required");
  if (delta === 0) throw invalid("delta", "must not be 0");
  return delta;
}

type UpdateChange = Extract<StockChange, { kind: "update" }>;
type Adjustment = Extract<StockChange, { kind: "adjust" }>;

/**
 * Reads an update of a quantity. It happens if the entry is at one of the expected revisions, or if none is named.
 *
 * @throws RpcError INVALID_FIELD for its quantity, or for too many revisions
 */
function readUpdate({
  petId,
  quantity,
  expectedRevisions,
}: Omit<UpdateInventoryRequest, "idempotencyKey">): UpdateChange {
  if (expectedRevisions.length > maxExpectedRevisions) {
    throw invalid("expected_revisions", `must be at most ${maxExpectedRevisions}`);
  }
  const expected = expectedRevisions.length === 0 ? undefined : expectedRevisions;
  return { kind: "update", petId, quantity: readQuantity(quantity), expectedRevisions: expected };
}

/**
 * Reads an update of a quantity that happens once if it has a key.
 *
 * @throws RpcError INVALID_FIELD
 */
export function readUpdateOnce({ idempotencyKey: key, ...update }: UpdateInventoryRequest): UpdateChange {
  const change = readUpdate(update);
  return key === undefined
    ? change
    : withKey(change, { account: "", key: readId("idempotency_key", key), fingerprint: "" });
}

/** @throws RpcError INVALID_FIELD */
export function readAdjustment({ petId, delta, requestId }: AdjustInventoryRequest): Adjustment {
  return { kind: "adjust", petId, delta: readDelta(delta), requestId: readId("request_id", requestId) };
}

/** Maximum changes of one group. */
const maxGroupChanges = 100;

/**
 * Reads the changes of one caller.
 *
 * @throws RpcError INVALID_FIELD
 */
export function readGroup({ changes, deadlineMs, idempotencyKey: key }: ChangeGroup): (UpdateChange | Adjustment)[] {
  if (deadlineMs === 0) throw invalid("deadline_ms", "is required");
  if (changes.length === 0) throw invalid("changes", "are required");
  if (changes.length > maxGroupChanges) throw invalid("changes", `must be at most ${maxGroupChanges}`);
  if (key === undefined) return changes.map(readChange);
  if (key.account !== "") readId("account", key.account);
  readId("key", key.key);
  if (key.fingerprint !== "") readId("fingerprint", key.fingerprint);
  if (new Set(changes.map(({ petId }) => petId)).size < changes.length) {
    throw invalid("changes", "must name each pet_id once when they have a key");
  }
  return changes.map((change) => withKey(readUpdate(change), key));
}

function readChange({ delta, requestId, ...update }: Change): UpdateChange | Adjustment {
  if (delta === undefined) return readUpdate(update);
  if (update.quantity !== undefined) throw invalid("delta", "must not be there beside quantity");
  return readAdjustment({ petId: update.petId, delta, requestId });
}

/** No id of an adjustment has a space. */
function withKey(change: UpdateChange, { account, key, fingerprint }: IdempotencyKey): UpdateChange {
  const { petId, quantity, expectedRevisions = ["any"] } = change;
  const made = fingerprint || hash("sha256", `${quantity} ${expectedRevisions.join(" ")}`, "base64url");
  return { ...change, once: { id: `${account} ${key} ${petId}`, fingerprint: made } };
}

/** @throws RpcError INVALID_FIELD that names the field, when it is missing or malformed */
function readId(field: string, id: string): string {
  if (!/^[A-Za-z0-9_.:-]{1,64}$/.test(id)) throw invalid(field, "must be 1 to 64 of A-Z a-z 0-9 _ . : -");
  return id;
}

/** @returns each id once, in order. @throws RpcError INVALID_FIELD when there are too many */
export function readPetIds(petIds: readonly bigint[]): bigint[] {
  const different = new Set<bigint>();
  for (const petId of petIds) {
    if (different.add(petId).size > entriesPerMessage) throw invalid("pet_ids", `must be at most ${entriesPerMessage}`);
  }
  return [...different];
}

export function invalid(field: string, fault: string): RpcError {
  return new RpcError("INVALID_FIELD", `${field} ${fault}`, { metadata: { field }, field });
}
