/** Reads what a request for the inventory brings: petId, preconditions, preferences, key and body. */
import { hash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { isReason, maxExpectedRevisions, maxQuantity, maxReasonLength, parsePetId } from "../../proto/pet.ts";
import { holdsKey } from "../accounts/keys/key-format.ts";
import { ApiError } from "../http/api-error.ts";
import { parseJson } from "../http/json.ts";

/**
 * Reads the petId of a path.
 *
 * @throws ApiError invalid_request for a text that is not a canonical int64
 */
export function readPetId(text: unknown): bigint {
  const petId = parsePetId(String(text));
  if (petId !== undefined) return petId;
  throw new ApiError("invalid_request", { message: "petId must be an int64 in decimal, as in 42." });
}

/** What an update expects of its entry. */
export interface Precondition {
  /** The entry has to be at one of these revisions, of which there are 1 to 20. */
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
 * A tag that names no revision, such as a weak one, matches no entry. It is not refused with 400, because 404 comes
 * first (RFC 9110 section 13.2.1).
 *
 * @param name of the text in messages
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
 * @param name in messages
 * @returns its revision
 * @throws ApiError invalid_request
 */
export function readEntryTag(text: string, name: string): bigint {
  const tag = /^(?:W\/)?"(.*)"$/.exec(text)?.[1] ?? text;
  const revision = BigInt(entryTag.exec(tag)?.[1] ?? -1);
  if (revision >= 0n && revision < 2n ** 63n) return revision;
  throw new ApiError("invalid_request", { message: `${name} must be one ETag of an entry, as in ${name}=r625.` });
}

/** The longest list of tags that is read, in characters: twenty ETags of entries take a quarter of it. */
const maxTagsLength = 2_048;

/** @throws ApiError invalid_request for what is no list of at most 20 tags */
function readTags(list: string, name: string): { readonly isWeak: boolean; readonly text: string }[] {
  const refuse = (fault: string) => new ApiError("invalid_request", { message: `${name} ${fault}` });
  if (list.length > maxTagsLength) throw refuse(`may have at most ${maxTagsLength} characters.`);
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

/** The longest wait that is granted, in seconds. */
const maxWaitSeconds = 90;

/** The first `wait` among preferences, with its seconds if it is well-formed. */
const firstWait = /(?:^|,)\s*wait\b(?:\s*=\s*(?:(\d+)|"(\d+)")\s*(?=[;,]|$))?/i;

/**
 * Reads how long a request prefers to wait for a change. Of several preferences for it the first one counts.
 *
 * @param prefer the header `Prefer`
 * @returns whole seconds, 0 to 90; undefined without the preference, and for one that is malformed (RFC 7240)
 */
export function readWaitSeconds(prefer: string | string[] | undefined): number | undefined {
  const [, bare, quoted] = firstWait.exec(String(prefer ?? "")) ?? [];
  const seconds = bare ?? quoted;
  return seconds === undefined ? undefined : Math.min(Number(seconds), maxWaitSeconds);
}

/** A change of an entry as its caller asks for it. */
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

/**
 * Makes the fingerprint that tells a repeat from every other request with the same key, even one to another operation.
 * The ledger keeps it, so its form must not change: repeats of earlier requests would get 422.
 */
export function fingerprintOf(operation: string, asked: readonly (AskedUpdate | AskedAdjustment)[]): string {
  const parts = asked.map(({ petId, precondition, reason, ...change }) => {
    const amount = "delta" in change ? change.delta : change.quantity;
    const text = `${petId} ${amount} ${precondition?.revisions.join() ?? "*"}`;
    return reason === undefined ? text : `${text} ${reason}`;
  });
  return hash("sha256", [operation, ...parts].join("\n"), "base64url");
}

/**
 * Reads the body: a JSON object with a `quantity` and, if wanted, a `reason`. Other members are ignored, unless they
 * look like a precondition or a key.
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
  refuseMisplaced(update, "", "the header If-Match");
  return { quantity: readJsonQuantity(update, "quantity"), reason: readJsonReason(update, "reason") };
}

/** The members of a JSON object. */
export type Members = Readonly<Record<string, unknown>>;

const preconditionLike = /^(?:if[-_]?(?:none[-_]?)?match|e[-_]?tag)$/i;
const keyLike = /^idempotency[-_]?key$/i;

/**
 * Refuses members that are meant as a precondition or as a key, and are none. If one were ignored, the change would
 * happen without its condition, or on each repeat.
 *
 * @param path what comes before a member in messages
 * @param precondition where a precondition belongs: `ifMatch` where that is a member
 * @throws ApiError invalid_request
 */
export function refuseMisplaced(members: Members, path: string, precondition: "ifMatch" | "the header If-Match"): void {
  for (const member of Object.keys(members)) {
    if (member === precondition) continue;
    const isKey = keyLike.test(member);
    if (!isKey && !preconditionLike.test(member)) continue;
    const place = isKey ? "the header Idempotency-Key" : precondition;
    throw new ApiError("invalid_request", { message: `${path}${member} is no member: use ${place}.` });
  }
}

/**
 * Reads why a change is made.
 *
 * @param name in messages
 * @throws ApiError invalid_request
 */
export function readJsonReason({ reason }: Members, name: string): string | undefined {
  if (reason === undefined) return undefined;
  if (typeof reason === "string" && isReason(reason) && !holdsKey(reason)) return reason;
  const rule = `a string of 1 to ${maxReasonLength} characters without control characters, and hold no API key`;
  throw new ApiError("invalid_request", { message: `${name} must be ${rule}.` });
}

/**
 * Reads the quantity of an update.
 *
 * @param name in messages
 * @throws ApiError invalid_request
 */
export function readJsonQuantity({ quantity }: Members, name: string): number {
  if (quantity === undefined) throw new ApiError("invalid_request", { message: `${name} is required.` });
  if (!Number.isInteger(quantity) || (quantity as number) < 0 || (quantity as number) > maxQuantity) {
    throw new ApiError("invalid_request", { message: `${name} must be an integer from 0 to ${maxQuantity}.` });
  }
  return (quantity as number) + 0; // -0 is an integer too, and becomes 0
}
