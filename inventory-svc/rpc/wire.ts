/** Converts messages of the contract to values of the stock, and back. */
import { hash } from "node:crypto";
import {
  type BatchAdjustInventoryRequest,
  type UpdateInventoryRequest,
  type Change as WireChange,
  type ChangeGroup as WireGroup,
  type IdempotencyKey as WireIdempotencyKey,
  type InventoryItem as WireItem,
  PetStatus as WireStatus,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import {
  fromWireStatus,
  type Item,
  isReason,
  maxExpectedRevisions,
  maxGroupChanges,
  maxQuantity,
  maxReasonLength,
  type PetStatus,
  toWireStatus,
} from "../../proto/pet.ts";
import type { Actor, AdjustChange, ChangeGroup, Once, Origin, UpdateChange } from "../stock/change.ts";
import { RpcError } from "./rpc-error.ts";

/** Entries in one message: about 20 KiB, far below the 4 MiB that a gRPC client accepts. */
export const entriesPerMessage = 1_000;

export function toWireItem(item: Item & { readonly removed?: boolean }): WireItem {
  return { ...item, status: toWireStatus(item.status), removed: item.removed ?? false };
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

/** Reads why a change is made. @throws RpcError INVALID_FIELD for a text that is too long or has control characters */
export function readReason(reason = ""): string | undefined {
  if (reason === "") return undefined;
  if (isReason(reason)) return reason;
  throw invalid("reason", `must be up to ${maxReasonLength} characters without control characters`);
}

/** @throws RpcError INVALID_FIELD for too many */
function readRevisions(expected: readonly bigint[]): readonly bigint[] | undefined {
  if (expected.length > maxExpectedRevisions) {
    throw invalid("expected_revisions", `must be at most ${maxExpectedRevisions}`);
  }
  return expected.length === 0 ? undefined : expected;
}

/**
 * Reads an update of a quantity. It happens once if it has a key.
 *
 * @throws RpcError INVALID_FIELD
 */
export function readUpdate({ idempotencyKey: key, ...update }: UpdateInventoryRequest): UpdateChange {
  const change = readQuantityUpdate(update);
  if (key === undefined) return change;
  return { ...change, once: onceBy({ account: "", key: readId("idempotency_key", key), fingerprint: "" }, change) };
}

type WireCommon = Pick<WireChange, "petId" | "expectedRevisions" | "reason">;

/** Reads what updates and adjustments have in common. @throws RpcError INVALID_FIELD */
function readCommon({ petId, expectedRevisions, reason }: WireCommon) {
  return { petId, expectedRevisions: readRevisions(expectedRevisions), reason: readReason(reason) };
}

function readQuantityUpdate(update: WireCommon & Pick<WireChange, "quantity">): UpdateChange {
  return { kind: "update", quantity: readQuantity(update.quantity), ...readCommon(update) };
}

/** @throws RpcError INVALID_FIELD */
export function readAdjustment(adjustment: WireCommon & Pick<WireChange, "delta" | "requestId">): AdjustChange {
  const change = readDeltaOf(adjustment);
  const id = readId("request_id", adjustment.requestId);
  const { delta, expectedRevisions } = change;
  const fingerprint = expectedRevisions ? hashOf(textOf(change)) : String(delta);
  return { ...change, once: { id, fingerprint, adjustmentId: id } };
}

function readDeltaOf(adjustment: WireCommon & Pick<WireChange, "delta">): AdjustChange {
  return { kind: "adjust", delta: readDelta(adjustment.delta), ...readCommon(adjustment) };
}

/**
 * Reads the changes of one caller.
 *
 * @param caller who makes them, unless the group names an account
 * @throws RpcError INVALID_FIELD
 */
export function readGroup(group: WireGroup, caller: Actor): ChangeGroup {
  const { changes, deadlineMs, idempotencyKey: key, allOrNothing: isAllOrNothing } = group;
  if (deadlineMs === 0) throw invalid("deadline_ms", "is required");
  checkCount("changes", changes);
  if (key !== undefined) {
    if (key.account !== "") readId("account", key.account);
    readId("key", key.key);
    if (key.fingerprint !== "") readId("fingerprint", key.fingerprint);
  }
  if (key !== undefined || isAllOrNothing) checkDifferent("changes", changes);
  const read = changes.map((change) => readChange(change, key !== undefined));
  // Without a key a repeat finds its adjustments, by their request ids, but not its quantities.
  if (isAllOrNothing && key === undefined && new Set(read.map(({ kind }) => kind)).size > 1) {
    throw invalid("idempotency_key", "is required for quantities and deltas that are all or nothing");
  }
  return {
    changes: key ? withIdempotencyKey(read, key, isAllOrNothing) : read,
    origin: readOrigin(group, caller),
    isAllOrNothing,
  };
}

/** Reads adjustments that are made all or none. @throws RpcError INVALID_FIELD */
export function readAdjustments({ adjustments, requestId }: BatchAdjustInventoryRequest, origin: Origin): ChangeGroup {
  checkCount("adjustments", adjustments);
  checkDifferent("adjustments", adjustments);
  const key = { account: "", key: readId("request_id", requestId), fingerprint: "" };
  return { changes: withIdempotencyKey(adjustments.map(readDeltaOf), key, true), origin, isAllOrNothing: true };
}

function checkCount(field: string, changes: readonly unknown[]): void {
  if (changes.length === 0) throw invalid(field, "are required");
  if (changes.length > maxGroupChanges) throw invalid(field, `must be at most ${maxGroupChanges}`);
}

function checkDifferent(field: string, changes: readonly { readonly petId: bigint }[]): void {
  if (new Set(changes.map(({ petId }) => petId)).size < changes.length) {
    throw invalid(field, "must name each pet_id once");
  }
}

function readChange(change: WireChange, hasKey: boolean): UpdateChange | AdjustChange {
  if (change.delta === undefined) {
    if (change.requestId !== "") throw invalid("request_id", "must not be there beside quantity: use a key");
    return readQuantityUpdate(change);
  }
  if (change.quantity !== undefined) throw invalid("delta", "must not be there beside quantity");
  if (!hasKey) return readAdjustment(change);
  if (change.requestId !== "") throw invalid("request_id", "must not be there beside a key");
  return readDeltaOf(change);
}

/** Where the changes of a group come from. @throws RpcError INVALID_FIELD */
function readOrigin({ account, keyId, originRequestId }: WireGroup, caller: Actor): Origin {
  const id = originRequestId && readId("origin_request_id", originRequestId);
  if (account === undefined) return { actor: caller, originRequestId: id };
  const ids = { account: readId("account", account), keyId: readId("key_id", keyId ?? "") };
  return { actor: { kind: "account", ...ids }, originRequestId: id };
}

/** Makes changes happen once by a key: each by itself, or all together where one refusal refuses all. */
function withIdempotencyKey<C extends UpdateChange | AdjustChange>(
  changes: readonly C[],
  key: WireIdempotencyKey,
  isAllOrNothing: boolean,
): C[] {
  if (!isAllOrNothing) return changes.map((change) => ({ ...change, once: onceBy(key, change) }));
  // An id has the index of its change and not its petId. So a repeat that names other entries finds the records of the
  // first request, and is refused.
  const fingerprint = key.fingerprint || hashOf(changes.map((change) => `${change.petId} ${textOf(change)}`).join());
  return changes.map((change, i) => {
    const id = `${key.account} ${key.key} #${i}`;
    return { ...change, once: { id, fingerprint, adjustmentId: adjustmentIdOf(key, change) } };
  });
}

/**
 * Names a change by its key. The spaces tell the id from the request id of an adjustment, which has none.
 *
 * The form of the id must not change: while the service is replaced, two versions of it look up the same kept ids, and
 * a change would happen twice.
 */
function onceBy(idempotencyKey: WireIdempotencyKey, change: UpdateChange | AdjustChange): Once {
  const { account, key, fingerprint } = idempotencyKey;
  const adjustmentId = adjustmentIdOf(idempotencyKey, change);
  return { id: `${account} ${key} ${change.petId}`, fingerprint: fingerprint || hashOf(textOf(change)), adjustmentId };
}

/** Without an account, the key of an adjustment is the id that an internal caller has given to it. */
function adjustmentIdOf(
  { account, key }: WireIdempotencyKey,
  { kind }: UpdateChange | AdjustChange,
): string | undefined {
  return kind === "adjust" && account === "" ? key : undefined;
}

/** The text of a change that is hashed. Hashes are kept, so its form must not change: repeats would be refused. */
function textOf(change: UpdateChange | AdjustChange): string {
  const { expectedRevisions = ["any"] } = change;
  return `${change.kind === "adjust" ? `delta ${change.delta}` : change.quantity} ${expectedRevisions.join(" ")}`;
}

const hashOf = (text: string): string => hash("sha256", text, "base64url");

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
