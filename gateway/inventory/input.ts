/** Reads what a request for the inventory brings: petId, preconditions and body. */
import { hash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { maxExpectedRevisions, maxQuantity, parsePetId } from "../../proto/pet.ts";
import { holdsKey } from "../accounts/keys/key-format.ts";
import { ApiError } from "../http/api-error.ts";
import { parseJson } from "../http/json.ts";
import type { ListTag } from "./list/stock-list.ts";

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
 * Reads the body: a JSON object with a `quantity`. Other members are ignored.
 *
 * @returns the quantity, 0 to 2147483647
 * @throws ApiError invalid_json, or invalid_request with a message that names what is wrong
 */
export function parseStockUpdate(bytes: Uint8Array): number {
  const body = parseJson(bytes);
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    const message = `The body must be a JSON object, and its quantity must be an integer from 0 to ${maxQuantity}.`;
    throw new ApiError("invalid_request", { message });
  }
  return readJsonQuantity(body as Readonly<Record<string, unknown>>, "quantity");
}

/**
 * Reads the quantity of an update.
 *
 * @param name what messages call it
 * @throws ApiError invalid_request
 */
export function readJsonQuantity({ quantity }: Readonly<Record<string, unknown>>, name: string): number {
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

/** What an update expects of its entry. */
export interface Precondition {
  /** The revisions that will do: 1 to 20. */
  readonly revisions: readonly bigint[];
  /** Says why the update did not happen. */
  readonly unmet: string;
}

/** An update as its caller asks for it. */
export interface AskedUpdate {
  readonly petId: bigint;
  readonly quantity: number;
  /** Undefined when any revision will do. */
  readonly precondition: Precondition | undefined;
}

/** A revision that no entry is ever at. */
const noRevision = -1n;

/** An entity tag with the comma before the next one, or the end (RFC 9110 sections 5.6.1 and 8.8.3). */
const listedTag = /[\t ]*(?:(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[\t ]*)?(?:,|$)/y;

const entryTag = /^r(0|[1-9]\d{0,18})$/;

/**
 * Reads the preconditions of a request. A caller that sends `If-None-Match: *` wants no entry to be there, so its
 * update changes none (RFC 9110 sections 13.1.1 and 13.1.2).
 *
 * @returns undefined when any revision will do
 * @throws ApiError invalid_request for an `If-Match` that is no list of tags, or has too many of them
 */
export function readPrecondition({
  "if-match": wanted = "*",
  "if-none-match": unwanted,
}: IncomingHttpHeaders): Precondition | undefined {
  const precondition = readIfMatch(wanted, "If-Match");
  if (unwanted?.trim() !== "*") return precondition;
  return { revisions: [noRevision], unmet: "There is an entry, which If-None-Match: * rules out." };
}

/**
 * Reads what an update expects: the entry is at a revision that one of these tags names.
 *
 * A tag that names no revision, such as a weak one, matches no entry. It is no fault of its own, because 404 comes
 * first (RFC 9110 section 13.2.1).
 *
 * @param name what messages call the text
 * @returns undefined for `*`: any revision will do
 * @throws ApiError invalid_request for what is no list of tags, or for too many of them
 */
export function readIfMatch(text: string, name: string): Precondition | undefined {
  if (text.trim() === "*") return undefined;
  const tags = readTags(text, name);
  const revisions = tags.flatMap(({ isWeak, text }) => {
    const revision = isWeak ? undefined : entryTag.exec(text)?.[1];
    return revision !== undefined && BigInt(revision) < 2n ** 63n ? BigInt(revision) : [];
  });
  if (revisions.length > 0)
    return { revisions, unmet: `The entry is not at a revision that an ETag in ${name} names.` };
  const unmet = tags.some(({ isWeak }) => isWeak)
    ? `A weak tag (W/) never matches: send the ETag of a read or an update of the entry in ${name}, without W/.`
    : `What ${name} holds is not an ETag of an entry: send the one of a read or an update of the entry, such as "r317".`;
  return { revisions: [noRevision], unmet };
}

/** @throws ApiError invalid_request for what is no list of at most 20 tags */
function readTags(list: string, name: string): { readonly isWeak: boolean; readonly text: string }[] {
  const refuse = (fault: string) => new ApiError("invalid_request", { message: `${name} ${fault}` });
  const tags = [];
  listedTag.lastIndex = 0;
  while (listedTag.lastIndex < list.length) {
    const match = listedTag.exec(list);
    if (!match) throw refuse(tagsRule);
    const [, weak, text] = match;
    if (text !== undefined) tags.push({ isWeak: weak !== undefined, text });
  }
  if (tags.length === 0) throw refuse(tagsRule);
  if (tags.length > maxExpectedRevisions) throw refuse(`may name at most ${maxExpectedRevisions} ETags.`);
  return tags;
}

const tagsRule = 'must be * or a list of ETags in double quotes, such as "r317".';

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
export function fingerprintOf(operation: string, updates: readonly AskedUpdate[]): string {
  const parts = updates.map(({ petId, quantity, precondition }) => {
    return `${petId} ${quantity} ${precondition?.revisions.join() ?? "*"}`;
  });
  return hash("sha256", [operation, ...parts].join("\n"), "base64url");
}
