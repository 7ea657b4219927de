/** Reads the body of a request for many updates. */
import { maxPetId, minPetId } from "../../../proto/pet.ts";
import { ApiError } from "../../http/api-error.ts";
import { parseJson } from "../../http/json.ts";
import { type AskedUpdate, type Precondition, readIfMatch, readJsonQuantity } from "../input.ts";

/** Maximum updates in one request. */
export const maxUpdates = 100;

/**
 * Reads the body: a JSON array of 1 to 100 objects with `petId`, `quantity` and, if wanted, `ifMatch`. Other members
 * are ignored.
 *
 * @throws ApiError invalid_json, or invalid_request with a message that names the index and the member that is wrong
 */
export function parseBulkUpdates(bytes: Uint8Array): AskedUpdate[] {
  const body = parseJson(bytes);
  if (!Array.isArray(body) || body.length === 0 || body.length > maxUpdates) {
    throw invalid(`The body must be a JSON array of 1 to ${maxUpdates} updates.`);
  }
  const places = new Map<bigint, number>();
  return body.map((member: unknown, index) => {
    const name = `updates[${index}]`;
    if (typeof member !== "object" || member === null || Array.isArray(member)) {
      throw invalid(`${name} must be an object with petId and quantity.`);
    }
    const update = member as Readonly<Record<string, unknown>>;
    const petId = readBodyPetId(update.petId, `${name}.petId`);
    const same = places.get(petId);
    if (same !== undefined) throw invalid(`${name}.petId is that of updates[${same}], too; each may be there once.`);
    places.set(petId, index);
    const quantity = readJsonQuantity(update, `${name}.quantity`);
    return { petId, quantity, precondition: readPreconditionOf(update.ifMatch, `${name}.ifMatch`) };
  });
}

function readBodyPetId(value: unknown, name: string): bigint {
  if (value === undefined) throw invalid(`${name} is required.`);
  if (Number.isSafeInteger(value)) return BigInt(value as number);
  if (typeof value === "bigint" && value >= minPetId && value <= maxPetId) return value;
  throw invalid(`${name} must be an int64, as a JSON integer without a fraction or an exponent.`);
}

function readPreconditionOf(value: unknown, name: string): Precondition | undefined {
  if (value === undefined) return undefined;
  if (typeof value === "string") return readIfMatch(value, name);
  throw invalid(`${name} must be a string with a list of ETags, as in the header If-Match.`);
}

function invalid(message: string): ApiError {
  return new ApiError("invalid_request", { message });
}
