/** Reads what a request for the inventory brings: petId, preconditions and body. */
import type { IncomingHttpHeaders } from "node:http";
import { maxExpectedRevisions, maxQuantity, parsePetId } from "../../proto/pet.ts";
import { ApiError } from "../http/errors.ts";
import { parseJson } from "../http/json.ts";
import type { ListTag } from "./list/stock-list.ts";

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
  if (mediaTypes.has(type.trim()) && isUtf8 && isPlain) return;
  throw new ApiError("unsupported_media_type", { headers: { "Accept-Patch": [...mediaTypes].join(", ") } });
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

/** What an update expects of its entry. */
export interface Precondition {
  /** The revisions that will do: 1 to 20. */
  readonly revisions: readonly bigint[];
  /** Says why the update did not happen. */
  readonly unmet: string;
}

/** A revision that no entry is ever at. */
const noRevision = -1n;

/** An entity tag with the comma before the next one, or the end (RFC 9110 sections 5.6.1 and 8.8.3). */
const listedTag = /[\t ]*(?:(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[\t ]*)?(?:,|$)/y;

const entryTag = /^r(0|[1-9]\d{0,18})$/;

/**
 * Reads what `If-Match` expects: the entry is at a revision that one of its tags names. A caller that sends
 * `If-None-Match: *` wants no entry to be there, so its update changes none (RFC 9110 sections 13.1.1 and 13.1.2).
 *
 * A tag that names no revision, such as a weak one, matches no entry. It is no fault of its own, because 404 comes first
 * (section 13.2.1).
 *
 * @returns undefined when any revision will do
 * @throws ApiError invalid_request for what is no list of tags, or for too many of them
 */
export function readPrecondition({
  "if-match": header = "*",
  "if-none-match": unwanted,
}: IncomingHttpHeaders): Precondition | undefined {
  const tags = header.trim() === "*" ? undefined : readTags(header);
  if (unwanted?.trim() === "*") {
    return { revisions: [noRevision], unmet: "There is an entry, which If-None-Match: * rules out." };
  }
  if (!tags) return undefined;
  const revisions = tags.flatMap(({ isWeak, text }) => {
    const revision = isWeak ? undefined : entryTag.exec(text)?.[1];
    return revision !== undefined && BigInt(revision) < 2n ** 63n ? BigInt(revision) : [];
  });
  if (revisions.length > 0)
    return { revisions, unmet: "The entry is not at a revision that an ETag in If-Match names." };
  const unmet = tags.some(({ isWeak }) => isWeak)
    ? "A weak tag (W/) never matches: send the ETag of an update's response in If-Match, without W/."
    : 'What If-Match holds is not an ETag of an entry: send that of an update\'s response, such as "r317".';
  return { revisions: [noRevision], unmet };
}

/** @throws ApiError invalid_request for what is no list of at most 20 tags */
function readTags(header: string): { readonly isWeak: boolean; readonly text: string }[] {
  const tags = [];
  listedTag.lastIndex = 0;
  while (listedTag.lastIndex < header.length) {
    const match = listedTag.exec(header);
    if (!match) throw new ApiError("invalid_request", { message: ifMatchRule });
    const [, weak, text] = match;
    if (text !== undefined) tags.push({ isWeak: weak !== undefined, text });
  }
  if (tags.length === 0) throw new ApiError("invalid_request", { message: ifMatchRule });
  if (tags.length > maxExpectedRevisions) {
    throw new ApiError("invalid_request", { message: `If-Match may name at most ${maxExpectedRevisions} ETags.` });
  }
  return tags;
}

const ifMatchRule = 'If-Match must be * or a list of ETags in double quotes, such as "r317".';
