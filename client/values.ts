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
  maxExpectedRevisions,
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

/**
 * Passes on the petId, the delta and the reason of an adjustment.
 *
 * @param place stands before the name of a member in an error, as `adjustments[1].`
 * @throws InventoryError INVALID_ARGUMENT
 */
export function checkAdjustment(
  adjustment: { readonly petId: bigint; readonly delta: number; readonly reason?: string | undefined },
  place = "",
) {
  return {
    petId: checkInt64(`${place}petId`, adjustment.petId),
    delta: checkInteger(`${place}delta`, adjustment.delta, -maxQuantity - 1, maxQuantity),
    reason: adjustment.reason,
  };
}

/**
 * Copies an array. A hole in it becomes `undefined`, because a check by `map` would skip it.
 *
 * @throws InventoryError INVALID_ARGUMENT that names it, and how many it may have
 */
export function checkArray<T>(name: string, values: readonly T[], max: number): readonly T[] {
  if (Array.isArray(values) && values.length >= 1 && values.length <= max) return Array.from(values);
  throw invalid(`${name} must be an array of 1 to ${max}`);
}

/** Passes on changes that are made together. @throws InventoryError INVALID_ARGUMENT for two of one entry */
export function checkDifferent<T extends { readonly petId: bigint }>(
  name: string,
  changes: readonly T[],
): readonly T[] {
  if (new Set(changes.map(({ petId }) => petId)).size === changes.length) return changes;
  throw invalid(`${name} must name each petId once`);
}

/** Passes a position on. @throws InventoryError INVALID_ARGUMENT */
export function checkPosition(position: Position | undefined): Position {
  return { epoch: checkText("epoch", position?.epoch), revision: checkInt64("revision", position?.revision) };
}

/**
 * Passes on the revisions that a change expects: undefined where any will do.
 *
 * @throws InventoryError INVALID_ARGUMENT
 */
export function checkExpected(expected: bigint | readonly bigint[] | undefined): bigint[] | undefined {
  if (expected === undefined) return undefined;
  if (!Array.isArray(expected)) return [checkInt64("expectedRevision", expected)];
  return checkRevisions("expectedRevision", expected);
}

/**
 * Copies a list of revisions.
 *
 * @throws InventoryError INVALID_ARGUMENT, also for an empty one: the service would take it for no condition
 */
export function checkRevisions(name: string, revisions: readonly bigint[]): bigint[] {
  return checkInt64s(name, checkArray(name, revisions, maxExpectedRevisions));
}

/** Copies a list of int64s. @throws InventoryError INVALID_ARGUMENT that names it, or its element */
export function checkInt64s(name: string, values: unknown): bigint[] {
  if (!Array.isArray(values)) throw invalid(`${name} must be an array of bigints`);
  return values.map((value, index) => checkInt64(`${name}[${index}]`, value));
}

/** Passes an integer on. @throws InventoryError INVALID_ARGUMENT that names it and its bounds */
export function checkInteger(name: string, value: unknown, min: number, max: number): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= min && value <= max) return value;
  throw invalid(`${name} must be an integer from ${min} to ${max}`);
}

/** The longest text. 64 changes with such texts fit into the 2 MiB of a message. */
const maxTextLength = 1_000;

/**
 * Passes a text on. In JavaScript a missing one would be sent as `undefined`, and a lone surrogate as another
 * character.
 *
 * @throws InventoryError INVALID_ARGUMENT
 */
export function checkText(name: string, value: unknown): string {
  if (typeof value !== "string") throw invalid(`${name} must be a string`);
  if (value.length <= maxTextLength && value.isWellFormed()) return value;
  throw invalid(`${name} must be at most ${maxTextLength} characters, without lone surrogates`);
}

/** Refuses an argument that another one excludes. @throws InventoryError INVALID_ARGUMENT that names it */
export function checkAbsent(name: string, value: unknown, why: string): void {
  if (value !== undefined) throw invalid(`${name} must not be there ${why}`);
}

/** The gRPC value of a status. @throws InventoryError INVALID_ARGUMENT for any other */
export function checkStatus(status: unknown) {
  const known = petStatuses.find((name) => name === status);
  if (known === undefined) throw invalid(`status must be one of ${petStatuses.join(", ")}`);
  return toWireStatus(known);
}

/** Passes on the path of a file. @throws InventoryError INVALID_ARGUMENT that names it */
export function checkPath(name: string, value: unknown): string {
  if (typeof value !== "string") throw invalid(`${name} must be the path of a PEM file`);
  return value;
}

/** @throws InventoryError INVALID_ARGUMENT */
export function checkFunction(name: string, value: unknown): void {
  if (typeof value !== "function") throw invalid(`${name} must be a function`);
}

function checkBoolean(name: string, value: unknown): void {
  if (typeof value !== "boolean") throw invalid(`${name} must be true or false`);
}

/** Passes a number on, but not `NaN`: a deadline of `NaN` ends the process. @throws InventoryError INVALID_ARGUMENT */
export function checkNumber(name: string, value: unknown): number {
  if (typeof value !== "number" || Number.isNaN(value)) throw invalid(`${name} must be a number`);
  return value;
}

function checkSignal(name: string, value: unknown): void {
  if (!(value instanceof AbortSignal)) throw invalid(`${name} must be an AbortSignal`);
}

/** Checks by the name of an argument, the same in every call; an absent argument passes. */
const optional: ReadonlyMap<string, (name: string, value: unknown) => void> = new Map(
  Object.entries({
    timeoutMs: checkNumber,
    silenceTimeoutMs: checkNumber,
    maxChanges: checkNumber,
    signal: checkSignal,
    onBreak: checkFunction,
    onPart: checkFunction,
    onSetback: checkFunction,
    afterPetId: checkInt64,
    beforeRevision: checkInt64,
    withRemoved: checkBoolean,
    isAllOrNothing: checkBoolean,
    reason: checkText,
    requestId: checkText,
    account: checkText,
    keyId: checkText,
    fingerprint: checkText,
    originRequestId: checkText,
    traceparent: checkText,
    serverName: checkText,
  }),
);

/** Names that are allowed beside `petId`, because a caller may pass a whole entry as the arguments. */
const ofEntries: readonly string[] = [...itemFields, "revision"];

/** The names of the members of a type, or of each type of a union. */
type NamesOf<T> = T extends unknown ? keyof T & string : never;

/**
 * Copies the named arguments of an object. It refuses unknown names: a misspelt condition would be ignored. It refuses
 * values of a wrong type for the names in `optional`. The caller of this function checks the required arguments.
 *
 * @throws InventoryError INVALID_ARGUMENT
 */
export function checkArguments<T extends object>(given: T, ...known: readonly NamesOf<T>[]): T {
  const names: readonly string[] = known;
  const isObject = typeof given === "object" && given !== null;
  if (!isObject) throw invalid(`an object is needed, with ${names.join(", ")}`);
  const takesEntry = names.includes("petId");
  for (const name of Object.keys(given)) {
    if (names.includes(name) || (takesEntry && ofEntries.includes(name))) continue;
    throw invalid(`there is no argument ${name}, only ${names.join(", ")}`);
  }
  const checked: Record<string, unknown> = {};
  for (const name of names) {
    const value = (given as Readonly<Record<string, unknown>>)[name];
    if (value === undefined) continue;
    optional.get(name)?.(name, value);
    checked[name] = value;
  }
  return checked as T;
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
