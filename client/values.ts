/**
 * Checks the values that cross the client: the arguments of callers, and the entries that the service sends. TypeScript
 * checks most arguments, but callers in JavaScript have only this.
 */

import type { InventoryItem as WireItem } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import {
  fromWireStatus,
  type Item,
  itemFields,
  type ListedItem,
  maxPetId,
  maxQuantity,
  minPetId,
  type Position,
  petStatuses,
  toWireStatus,
} from "../proto/pet.ts";
import { InventoryError, notSent } from "./inventory-error.ts";

/** Passes an int64 on. @throws InventoryError INVALID_ARGUMENT that names it */
export function checkInt64(name: string, value: unknown): bigint {
  if (typeof value !== "bigint") throw invalid(`${name} must be a bigint, such as 1001n`);
  if (value < minPetId || value > maxPetId) throw invalid(`${name} must be from -2^63 to 2^63 - 1`);
  return value;
}

/** Passes on the petId and quantity of an entry. @throws InventoryError INVALID_ARGUMENT */
export function checkEntry({ petId, quantity }: { readonly petId: bigint; readonly quantity: number }) {
  return { petId: checkInt64("petId", petId), quantity: checkInteger("quantity", quantity, 0, maxQuantity) };
}

/** Passes on the petId, the delta and the reason of an adjustment. @throws InventoryError INVALID_ARGUMENT */
export function checkDelta(adjustment: {
  readonly petId: bigint;
  readonly delta: number;
  readonly reason?: string | undefined;
}) {
  return {
    petId: checkInt64("petId", adjustment.petId),
    delta: checkInteger("delta", adjustment.delta, -maxQuantity - 1, maxQuantity),
    reason: checkReason(adjustment),
  };
}

/** Passes on why a change is made. @throws InventoryError INVALID_ARGUMENT */
export function checkReason({ reason }: { readonly reason?: string | undefined }): string | undefined {
  return reason === undefined ? undefined : checkText("reason", reason);
}

/** Passes an array on that is not empty. @throws InventoryError INVALID_ARGUMENT that names it */
export function checkArray<T>(name: string, values: readonly T[]): readonly T[] {
  if (!Array.isArray(values) || values.length === 0) throw invalid(`${name} must be an array of at least one`);
  return values;
}

/** Passes a position on. @throws InventoryError INVALID_ARGUMENT */
export function checkPosition(position: Position | undefined): Position {
  return { epoch: checkText("epoch", position?.epoch), revision: checkInt64("revision", position?.revision) };
}

/**
 * Checks the revisions that an update expects: undefined where any will do.
 *
 * @throws InventoryError INVALID_ARGUMENT, also for an empty list
 */
export function checkRevisions(expected: bigint | readonly bigint[] | undefined): bigint[] | undefined {
  if (expected === undefined) return undefined;
  if (!Array.isArray(expected)) return [checkInt64("expectedRevision", expected)];
  if (expected.length === 0) throw invalid("expectedRevision must name a revision"); // it would be sent as none
  return checkInt64s("expectedRevision", expected);
}

/** Passes on a list of int64s. @throws InventoryError INVALID_ARGUMENT that names it, or its element */
export function checkInt64s(name: string, values: unknown): bigint[] {
  if (!Array.isArray(values)) throw invalid(`${name} must be an array of bigints`);
  return values.map((value, index) => checkInt64(`${name}[${index}]`, value));
}

/** Passes an integer on. @throws InventoryError INVALID_ARGUMENT that names it and its bounds */
export function checkInteger(name: string, value: unknown, min: number, max: number): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
  throw invalid(`${name} must be an integer from ${min} to ${max}`);
}

/**
 * Passes a text on. In JavaScript a missing one would be sent as `undefined`.
 *
 * @throws InventoryError INVALID_ARGUMENT
 */
export function checkText(name: string, value: unknown): string {
  if (typeof value !== "string") throw invalid(`${name} must be a string`);
  return value;
}

/** The gRPC value of a status. @throws InventoryError INVALID_ARGUMENT for any other */
export function checkStatus(status: unknown) {
  const known = petStatuses.find((name) => name === status);
  if (known === undefined) throw invalid(`status must be one of ${petStatuses.join(", ")}`);
  return toWireStatus(known);
}

/** Names that are always allowed, because a caller may pass a whole entry as the arguments. */
const ofEntries: readonly string[] = [...itemFields, "revision"];

/**
 * Passes on an object of named arguments. It refuses unknown names: a misspelt condition would be ignored.
 *
 * @throws InventoryError INVALID_ARGUMENT for a name that is not known
 */
export function checkNames<T extends object>(given: T, ...known: readonly (keyof T & string)[]): T {
  const unknown = Object.keys(Object(given)).find((name) => ![...ofEntries, ...known].includes(name));
  if (unknown !== undefined) throw invalid(`there is no argument ${unknown}, only ${known.join(", ")}`);
  return given;
}

/** @throws InventoryError INVALID_ARGUMENT for an empty text or a URL: grpc-js would look for it until the deadline */
export function checkAddress(address: unknown): void {
  const example = "must be a gRPC target, such as 127.0.0.1:50051 or dns:///inventory-svc:50051";
  if (typeof address !== "string" || address === "") throw invalid(`address ${example}`);
  if (isUrl(address)) throw invalid(`address ${example}, and no URL: ${address}`);
}

function invalid(message: string): InventoryError {
  return notSent(message, undefined, "INVALID_ARGUMENT");
}

/** Whether an address is a URL, as of a web server, and no gRPC target. */
function isUrl(address: string): boolean {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(address)?.[1]?.toLowerCase();
  return scheme !== undefined && !["dns", "unix", "xds"].includes(scheme);
}

/** @throws InventoryError for an answer without an entry, or with a status that this client does not know */
export function toItem(item: WireItem | undefined): Item {
  const { removed: _removed, ...entry } = readItem(item);
  return entry;
}

/** As `toItem`, for an entry of a list or of changes, which keeps `removed`. */
export function toListedItem(item: WireItem): ListedItem {
  return readItem(item);
}

function readItem(item: WireItem | undefined): ListedItem {
  const status = item && fromWireStatus(item.status);
  if (!item || !status) {
    const message = "the service sent an entry that this client does not understand";
    throw new InventoryError("INTERNAL", message, { reason: "INTERNAL" });
  }
  return { ...item, status };
}
