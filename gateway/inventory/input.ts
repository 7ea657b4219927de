/** Reads what a request for the inventory brings: petId, preconditions and body. */
import { hash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { isReason, maxQuantity, maxReasonLength, parsePetId } from "../../proto/pet.ts";
import { holdsKey } from "../accounts/keys/key-format.ts";
import { ApiError } from "../http/api-error.ts";
import { parseJson } from "../http/json.ts";
import type { ListTag } from "./list/stock-list.ts";
import type { Precondition } from "./preconditions.ts";

/** The media types that a method takes, and the header that names them where a request has another one. */
export interface BodyTypes {
  readonly types: readonly string[];
  readonly header: "Accept-Patch" | "Accept-Post";
}

export const patchTypes: BodyTypes = {
  types: ["application/json", "application/merge-patch+json"],
  header: "Accept-Patch",
};

export const postTypes: BodyTypes = { types: ["application/json"], header: "Accept-Post" };

/**
 * Checks that the headers announce JSON in UTF-8.
 *
 * @throws ApiError unsupported_media_type
 */
export function checkMediaType(
  { "content-type": contentType = "", "content-encoding": contentEncoding = "identity" }: IncomingHttpHeaders,
  { types, header }: BodyTypes,
): void {
  const [type = "", ...parameters] = contentType.toLowerCase().split(";");
  const isUtf8 = parameters.every((parameter) => {
    const [name, value] = parameter.trim().split("=");
    return name !== "charset" || value?.replaceAll('"', "") === "utf-8";
  });
  if (types.includes(type.trim()) && isUtf8 && contentEncoding.toLowerCase() === "identity") return;
  const message = `The body must be ${types.join(" or ")} in UTF-8, without a content coding.`;
  throw new ApiError("unsupported_media_type", { message, headers: { [header]: types.join(", ") } });
}

/**
 * Reads the body: a JSON object with a `quantity` and, if wanted, a `reason`. Other members are ignored.
 *
 * @throws ApiError invalid_json, or invalid_request with a message that names what is wrong
 */
export function parseStockUpdate(bytes: Uint8Array): Pick<AskedUpdate, "quantity" | "reason"> {
  const body = parseJson(bytes);
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    const message = `The body must be a JSON object, and its quantity must be an integer from 0 to ${maxQuantity}.`;
    throw new ApiError("invalid_request", { message });
  }
  const update = body as Members;
  refuseLostPreconditions(update, (member) => `${member} is no member of the body: use the header If-Match.`);
  return { quantity: readJsonQuantity(update, "quantity"), reason: readJsonReason(update, "reason") };
}

/** The members of a JSON object. */
export type Members = Readonly<Record<string, unknown>>;

/**
 * Refuses members that are meant as a precondition and are none: to ignore one would make a change that its caller wants
 * to be made only in some cases.
 *
 * @param toMessage makes the message of a member
 * @param own the member that is one
 * @throws ApiError invalid_request
 */
export function refuseLostPreconditions(members: Members, toMessage: (member: string) => string, own?: string): void {
  const lost = Object.keys(members).find((member) => member !== own && /^if[-_]?(?:none[-_]?)?match$/i.test(member));
  if (lost !== undefined) throw new ApiError("invalid_request", { message: toMessage(lost) });
}

/**
 * Reads why a change is made.
 *
 * @param name what messages call it
 * @throws ApiError invalid_request
 */
export function readJsonReason({ reason }: Members, name: string): string | undefined {
  if (reason === undefined) return undefined;
  if (typeof reason === "string" && isReason(reason)) return reason;
  const message = `${name} must be a string of 1 to ${maxReasonLength} characters without control characters.`;
  throw new ApiError("invalid_request", { message });
}

/**
 * Reads the quantity of an update.
 *
 * @param name what messages call it
 * @throws ApiError invalid_request
 */
export function readJsonQuantity({ quantity }: Members, name: string): number {
  if (quantity === undefined) throw new ApiError("invalid_request", { message: `${name} is required.` });
  if (!Number.isInteger(quantity) || (quantity as number) < 0 || (quantity as number) > maxQuantity) {
    throw new ApiError("invalid_request", { message: `${name} must be an integer from 0 to ${maxQuantity}.` });
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

/** What is between the quotes of the list's ETag, in either coding. */
const listTag = /^(?<epoch>[\x21\x23-\x7e]{8})-(?<revision>0|[1-9]\d{0,18})(?:-gzip)?$/;

/**
 * Reads `since` of a query: an ETag of the list, also one that a proxy has made weak, with or without its quotes.
 *
 * @throws ApiError invalid_request for none, several, and what is no ETag of the list
 */
export function readSince(query: URLSearchParams): ListTag {
  const [since = "", ...others] = query.getAll("since");
  const text = /^(?:W\/)?"(.*)"$/.exec(since)?.[1] ?? since;
  const tag = others.length === 0 ? listTag.exec(text)?.groups : undefined;
  if (tag) return { epoch: tag.epoch!, revision: BigInt(tag.revision!) };
  throw new ApiError("invalid_request", {
    message: "since must be one ETag of the list, percent-encoded, as in /inventory/changes?since=4f2c9a01-318.",
  });
}

/** The longest wait that is granted, in seconds. */
const maxWaitSeconds = 90;

/**
 * Reads how long a request prefers to wait for a change. Of several preferences for it the first one counts.
 *
 * @param prefer the header `Prefer`
 * @returns whole seconds, 0 to 90; undefined without the preference, and for one that is malformed (RFC 7240)
 */
export function readWait(prefer: string | string[] | undefined): number | undefined {
  const wait = String(prefer ?? "")
    .split(",")
    .find((preference) => /^wait\b/i.test(preference.trim()));
  const seconds = /^wait\s*=\s*(?:(\d+)|"(\d+)")\s*(?:;|$)/i.exec(wait?.trim() ?? "");
  return seconds ? Math.min(Number(seconds[1] ?? seconds[2]), maxWaitSeconds) : undefined;
}

/** What a caller asks for to be done to an entry. */
interface AskedChange {
  readonly petId: bigint;
  /** Undefined when any revision will do. */
  readonly precondition: Precondition | undefined;
  /** Why, for the ledger. */
  readonly reason: string | undefined;
}

/** An update as its caller asks for it. */
export interface AskedUpdate extends AskedChange {
  readonly quantity: number;
}

/** An adjustment as its caller asks for it. */
export interface AskedAdjustment extends AskedChange {
  /** Negative to take away; not 0. */
  readonly delta: number;
}

/** A key as it is, or as a quoted string (draft-ietf-httpapi-idempotency-key-header). */
const idempotencyKey = /^(?:"([\w.:-]{1,64})"|([\w.:-]{1,64}))$/;

/**
 * Reads the key that makes the updates of a request happen once.
 *
 * @returns undefined for a request without one
 * @throws ApiError invalid_request
 */
export function readIdempotencyKey({ "idempotency-key": header }: IncomingHttpHeaders): string | undefined {
  if (header === undefined) return undefined;
  const [, quoted, bare] = idempotencyKey.exec(String(header).trim()) ?? [];
  const key = quoted ?? bare;
  if (key !== undefined && !holdsKey(key)) return key;
  const rule = key === undefined ? "be 1 to 64 of A-Z a-z 0-9 _ . : -" : "not be an API key.";
  throw new ApiError("invalid_request", { message: `Idempotency-Key must ${rule}` });
}

/** Tells a request from all others with the same key. @param operation tells it from those of other operations */
export function fingerprintOf(operation: string, asked: readonly (AskedUpdate | AskedAdjustment)[]): string {
  const parts = asked.map(({ petId, precondition, reason, ...change }) => {
    const amount = "delta" in change ? change.delta : change.quantity;
    const text = `${petId} ${amount} ${precondition?.revisions.join() ?? "*"}`;
    return reason === undefined ? text : `${text} ${reason}`;
  });
  return hash("sha256", [operation, ...parts].join("\n"), "base64url");
}
