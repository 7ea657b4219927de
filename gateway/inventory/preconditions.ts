/** Reads ETags of entries, and what a change expects of its entry. */
import type { IncomingHttpHeaders } from "node:http";
import { maxExpectedRevisions } from "../../proto/pet.ts";
import { ApiError } from "../http/api-error.ts";

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

/**
 * Reads the ETag of an entry, also one that a proxy has made weak, with or without its quotes.
 *
 * @param name what messages call it
 * @returns its revision
 * @throws ApiError invalid_request
 */
export function readEntryTag(text: string, name: string): bigint {
  const tag = /^(?:W\/)?"(.*)"$/.exec(text)?.[1] ?? text;
  const revision = BigInt(entryTag.exec(tag)?.[1] ?? -1);
  if (revision >= 0n && revision < 2n ** 63n) return revision;
  throw new ApiError("invalid_request", { message: `${name} must be one ETag of an entry, as in ${name}=r625.` });
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
