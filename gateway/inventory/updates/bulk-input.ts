/** Reads the body of a request for many updates or adjustments. */
import { maxGroupChanges, maxPetId, maxQuantity, minPetId } from "../../../proto/pet.ts";
import { ApiError } from "../../http/api-error.ts";
import { parseJson } from "../../http/json.ts";
import {
  type AskedAdjustment,
  type AskedUpdate,
  type Members,
  type Precondition,
  readIfMatch,
  readJsonQuantity,
  readJsonReason,
  refuseMisplaced,
} from "../input.ts";

/**
 * Reads the body: a JSON array of 1 to 100 objects with `petId`, `quantity` and, if wanted, `ifMatch` and `reason`.
 * Other members are ignored, unless they look like a precondition or a key.
 *
 * @throws ApiError invalid_json, or invalid_request with a message that names the index and the member that is wrong
 */
export function parseBulkUpdates(bytes: Uint8Array): AskedUpdate[] {
  return parseChanges(bytes, "updates", "quantity", (update, name) => {
    return { quantity: readJsonQuantity(update, `${name}.quantity`) };
  });
}

/** Reads the body: the same with `delta` in place of `quantity`. @throws ApiError invalid_json, or invalid_request */
export function parseAdjustments(bytes: Uint8Array): AskedAdjustment[] {
  return parseChanges(bytes, "adjustments", "delta", ({ delta }, name) => {
    if (delta === undefined) throw invalid(`${name}.delta is required.`);
    const isDelta = Number.isInteger(delta) && Math.abs(delta as number) <= maxQuantity && delta !== 0;
    if (isDelta) return { delta: delta as number };
    throw invalid(`${name}.delta must be an integer from -${maxQuantity} to ${maxQuantity}, and not 0.`);
  });
}

function parseChanges<T>(
  bytes: Uint8Array,
  plural: string,
  amount: string,
  readAmount: (change: Members, name: string) => T,
) {
  const body = parseJson(bytes);
  if (!Array.isArray(body) || body.length === 0 || body.length > maxGroupChanges) {
    throw invalid(`The body must be a JSON array of 1 to ${maxGroupChanges} ${plural}.`);
  }
  const places = new Map<bigint, number>();
  return body.map((member: unknown, index) => {
    const name = `${plural}[${index}]`;
    if (typeof member !== "object" || member === null || Array.isArray(member)) {
      throw invalid(`${name} must be an object with petId and ${amount}.`);
    }
    const change = member as Members;
    refuseMisplaced(change, `${name}.`, "ifMatch");
    const petId = readBodyPetId(change.petId, `${name}.petId`);
    const same = places.get(petId);
    if (same !== undefined) throw invalid(`${name}.petId is that of ${plural}[${same}], too; each may be there once.`);
    places.set(petId, index);
    return {
      petId,
      ...readAmount(change, name),
      precondition: readPreconditionOf(change.ifMatch, `${name}.ifMatch`),
      reason: readJsonReason(change, `${name}.reason`),
    };
  });
}

function readBodyPetId(value: unknown, name: string): bigint {
  if (value === undefined) throw invalid(`${name} is required.`);
  if (Number.isSafeInteger(value)) return BigInt(value as number);
  if (typeof value === "bigint" && value >= minPetId && value <= maxPetId) return value;
  throw invalid(`${name} must be an int64, as a JSON integer.`);
}

function readPreconditionOf(value: unknown, name: string): Precondition | undefined {
  if (value === undefined) return undefined;
  if (typeof value === "string") return readIfMatch(value, name);
  throw invalid(`${name} must be a string with a list of ETags, as in the header If-Match.`);
}

function invalid(message: string): ApiError {
  return new ApiError("invalid_request", { message });
}
