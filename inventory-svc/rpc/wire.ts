/** Between messages of the contract and values of the stock. */
import { hash } from "node:crypto";
import {
  type InventoryItem,
  type KeyedUpdates,
  type Update,
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
import type { Change, ChangeGroup } from "../stock/changes.ts";
import { RpcError } from "./errors.ts";

/** Entries in one message: about 20 KiB, far below the 4 MiB that a gRPC client accepts. */
export const entriesPerMessage = 1_000;

export function toWireItem(item: Item): InventoryItem {
  return { petId: item.petId, quantity: item.quantity, status: toWireStatus(item.status), revision: item.revision };
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
export function readDelta(delta: number | undefined): number {
  if (delta === undefined) throw invalid("delta", "is required");
  if (delta === 0) throw invalid("delta", "must not be 0");
  return delta;
}

type UpdateChange = Extract<Change, { kind: "update" }>;

/** An update of a quantity, as a call or a stream brings it. */
type WireUpdate = Pick<Update, "petId" | "quantity" | "expectedRevision" | "furtherExpectedRevisions">;

/**
 * Reads an update of a quantity. It happens if the entry is at one of the expected revisions, or if none is named.
 *
 * @throws RpcError INVALID_FIELD for its quantity, or for too many revisions
 */
export function readUpdate({
  petId,
  quantity,
  expectedRevision,
  furtherExpectedRevisions: further,
}: WireUpdate): UpdateChange {
  const named = expectedRevision === undefined ? further : [expectedRevision, ...further];
  if (named.length > maxExpectedRevisions) {
    throw invalid("further_expected_revisions", `must be at most ${maxExpectedRevisions} with expected_revision`);
  }
  const expectedRevisions = named.length === 0 ? undefined : named;
  return { kind: "update", petId, quantity: readQuantity(quantity), expectedRevisions };
}

/**
 * Reads an update of a quantity that happens once if it has a key.
 *
 * @throws RpcError INVALID_FIELD
 */
export function readUpdateOnce({ idempotencyKey: key, ...update }: UpdateInventoryRequest): UpdateChange {
  const change = readUpdate(update);
  if (key === undefined) return change;
  const { petId, quantity, expectedRevisions = ["any"] } = change;
  const fingerprint = hash("sha256", `${quantity} ${expectedRevisions.join(" ")}`, "base64url");
  return { ...change, once: onceFor("", readId("idempotency_key", key), petId, fingerprint) };
}

/** Maximum updates of one key in a message. */
const maxKeyedUpdates = 100;

/**
 * Reads updates of one request that happen once.
 *
 * @throws RpcError INVALID_FIELD
 */
export function readKeyedUpdates({ account, key, fingerprint, updates }: KeyedUpdates): ChangeGroup {
  if (account !== "") readId("account", account);
  readId("key", key);
  readId("fingerprint", fingerprint);
  if (updates.length > maxKeyedUpdates) throw invalid("updates", `must be at most ${maxKeyedUpdates}`);
  return updates.map((update) => {
    return { ...readUpdate(update), once: onceFor(account, key, update.petId, fingerprint) };
  });
}

/** No id of an adjustment has a space. */
function onceFor(account: string, key: string, petId: bigint, fingerprint: string) {
  return { id: `${account} ${key} ${petId}`, fingerprint };
}

/** @throws RpcError INVALID_FIELD when it is missing or malformed */
export function readRequestId(requestId: string): string {
  return readId("request_id", requestId);
}

/** @throws RpcError INVALID_FIELD that names the field, when it is missing or malformed */
function readId(field: string, id: string): string {
  if (!/^[A-Za-z0-9_.:-]{1,64}$/.test(id)) throw invalid(field, "must be 1 to 64 of A-Z a-z 0-9 _ . : -");
  return id;
}

/** @throws RpcError INVALID_FIELD when it is missing */
export function readTimeoutMs(timeoutMs: number): number {
  if (timeoutMs === 0) throw invalid("timeout_ms", "is required");
  return timeoutMs;
}

/** @returns each id once, in order. @throws RpcError INVALID_FIELD when there are too many */
export function readPetIds(petIds: readonly bigint[]): bigint[] {
  const different = new Set<bigint>();
  for (const petId of petIds) {
    if (different.add(petId).size > entriesPerMessage) throw invalid("pet_ids", `must be at most ${entriesPerMessage}`);
  }
  return [...different];
}

function invalid(field: string, fault: string): RpcError {
  return new RpcError("INVALID_FIELD", `${field} ${fault}`, { metadata: { field }, field });
}
