/** Reads the query of a read: which part of the list it asks for, and since when. */
import type { IncomingMessage } from "node:http";
import { minPetId, parsePetId } from "../../../proto/pet.ts";
import { ApiError } from "../../http/api-error.ts";
import { queryOf, queryValue, readWholeNumber } from "../../http/query.ts";
import type { PageRange } from "../list/page.ts";
import type { ListTag } from "../list/stock-list.ts";

/** A selection from the list: the entries with some petIds, or a page. */
export type ListSelection =
  /** 1 to 100, in order, each once. */
  | { readonly petIds: readonly bigint[]; readonly range?: undefined }
  | { readonly petIds?: undefined; readonly range: PageRange };

const maxPetIds = 100;
const maxLimit = 10_000;

/**
 * Reads `petIds`, or `limit` and `after`, of a query. Other parameters are ignored, as the document says.
 *
 * @returns undefined for the whole list
 * @throws ApiError invalid_request
 */
export function readListSelection(request: IncomingMessage): ListSelection | undefined {
  if (!request.url!.includes("?")) return undefined;
  const query = queryOf(request);
  const petIds = queryValue(query, "petIds");
  const limit = queryValue(query, "limit");
  const after = queryValue(query, "after");
  if (petIds !== undefined) {
    if (limit === undefined && after === undefined) return { petIds: readPetIds(petIds) };
    throw invalid("petIds excludes limit and after: entries by their petIds come in one answer.");
  }
  if (limit !== undefined)
    return { range: { limit: readWholeNumber("limit", limit, maxLimit), after: readAfter(after) } };
  if (after === undefined) return undefined;
  throw invalid(`after needs a limit from 1 to ${maxLimit} beside it.`);
}

function readPetIds(text: string): bigint[] {
  const parts = new Set(text.split(",")); // a petId has one form
  if (parts.size > maxPetIds) throw invalid(`petIds may name at most ${maxPetIds} entries.`);
  const petIds = Array.from(parts, (part) => {
    const petId = parsePetId(part);
    if (petId !== undefined) return petId;
    throw invalid("petIds must be int64s in decimal, comma-separated without blanks, as in petIds=42,1001.");
  });
  return petIds.sort((a, b) => (a < b ? -1 : 1));
}

function readAfter(text: string | undefined): bigint {
  const after = text === undefined ? minPetId - 1n : parsePetId(text);
  if (after !== undefined) return after;
  throw invalid("after must be an int64 in decimal: the petId that the page begins after.");
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
  if (tag) return { epochTag: tag.epoch!, revision: BigInt(tag.revision!) };
  throw invalid("since must be one ETag of the list, percent-encoded, as in /inventory/changes?since=4f2c9a01-318.");
}

function invalid(message: string): ApiError {
  return new ApiError("invalid_request", { message });
}
