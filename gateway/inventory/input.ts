/** Reads what a request for the inventory brings: petId, preconditions and body. */
import type { IncomingHttpHeaders } from "node:http";
import { maxQuantity, parsePetId } from "../../proto/pet.ts";
import { ApiError } from "../http/errors.ts";
import { parseJson } from "../http/json.ts";

const mediaTypes = new Set(["application/json", "application/merge-patch+json"]);

/**
 * Checks that the headers announce JSON in UTF-8.
 *
 * @throws ApiError unsupported_media_type
 */
export function checkMediaType(contentType: string | undefined, contentEncoding: string | undefined): void {
  const [type = "", ...parameters] = (contentType ?? "").toLowerCase().split(";");
  const isUtf8 = parameters.every((parameter) => {
    const [name, value] = parameter.trim().split("=");
    return name !== "charset" || value?.replaceAll('"', "") === "utf-8";
  });
  const isPlain = contentEncoding === undefined || contentEncoding.toLowerCase() === "identity";
  if (!mediaTypes.has(type.trim()) || !isUtf8 || !isPlain) throw new ApiError("unsupported_media_type");
}

const quantityRule = `quantity must be an integer from 0 to ${maxQuantity}`;

/**
 * Reads the body: a JSON object with a `quantity`. Other members are ignored.
 *
 * @returns the quantity, 0 to 2147483647
 * @throws ApiError invalid_json, or invalid_request with a message that names what is wrong
 */
export function parseStockUpdate(bytes: Uint8Array): number {
  const body = parseJson(bytes);
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    throw new ApiError("invalid_request", { message: `The body must be a JSON object, and its ${quantityRule}.` });
  }
  const { quantity } = body as { readonly quantity?: unknown };
  if (quantity === undefined) throw new ApiError("invalid_request", { message: "quantity is required." });
  if (!Number.isInteger(quantity) || (quantity as number) < 0 || (quantity as number) > maxQuantity) {
    throw new ApiError("invalid_request", { message: `${quantityRule}.` });
  }
  return (quantity as number) + 0; // -0 is an integer too, and becomes 0
}

/**
 * Reads the petId of a path.
 *
 * @throws ApiError invalid_request for a text that is not a canonical int64
 */
export function readPetId(text: unknown): bigint {
  const petId = parsePetId(String(text));
  if (petId !== undefined) return petId;
  throw new ApiError("invalid_request", { message: "petId must be an int64 in decimal, as in /inventory/42." });
}

/** A revision that no entry is ever at. */
const noRevision = -1n;

/**
 * Reads the revision at which an update expects its entry: `If-Match` names it. A caller that sends `If-None-Match: *`
 * wants no entry to be there, so its update changes none (RFC 9110 sections 13.1.1 and 13.1.2).
 *
 * A tag of another form matches no entry. It is no fault of its own, because 400 and 404 come first (section 13.2.1).
 *
 * @returns undefined when any revision will do
 */
export function readPrecondition({
  "if-match": header,
  "if-none-match": unwanted,
}: IncomingHttpHeaders): bigint | undefined {
  if (unwanted?.trim() === "*") return noRevision;
  if (header === undefined || header.trim() === "*") return undefined;
  const match = /^\s*"r(0|[1-9]\d{0,18})"\s*$/.exec(header);
  return match && BigInt(match[1]!) < 2n ** 63n ? BigInt(match[1]!) : noRevision;
}
