/** The handlers of the operations that read the inventory. */

import type { IncomingMessage } from "node:http";
import type { Request, RequestHandler, Response } from "express";
import { minPetId, parsePetId } from "../../../proto/pet.ts";
import type { Admission } from "../../admission/admission.ts";
import { ApiError } from "../../http/api-error.ts";
import { queryOf, queryValue, readWholeNumber } from "../../http/request.ts";
import { contextOf, hasWaited } from "../../http/request-context.ts";
import { acceptsGzip, jsonType, matchesEtag, writeJson } from "../../http/respond.ts";
import { readPetId } from "../input.ts";
import { entryEtag } from "../list/chunk.ts";
import { findEntry, type RenderedEntry } from "../list/chunks.ts";
import { type PageRange, pageOf } from "../list/page.ts";
import type { PinnedBodies } from "../list/pinned-bodies.ts";
import { type Body, bodyOfText, type Snapshot } from "../list/snapshot.ts";
import { isAt, type ListTag, type StockList } from "../list/stock-list.ts";
import { noEntry } from "../public-errors.ts";
import type { LongPolls } from "./long-polls.ts";
import { streamBody } from "./stream-body.ts";

export interface ListInventoryOptions {
  readonly list: Pick<StockList, "readFresh">;
  /** Looks again at the key of a request that had to wait. */
  readonly admission: Pick<Admission, "reverifyCaller">;
  /** Bounds the memory of versions that slow readers still read. */
  readonly pinnedBodies: PinnedBodies;
  /** Time that the reader of a long body gets in addition to what the least speed needs. */
  readonly stallTimeoutMs: number;
}

export interface ReadInventoryOptions extends ListInventoryOptions {
  readonly list: Pick<StockList, "readFresh" | "changesSince">;
  /** Holds the requests that prefer to wait. */
  readonly longPolls: Pick<LongPolls, "holdUntilChange">;
}

/** GET /inventory: every entry, or a selection, at least as new as the request. */
export function listInventory({ list, admission, pinnedBodies, stallTimeoutMs }: ListInventoryOptions): RequestHandler {
  return async (request, response) => {
    const selection = readListSelection(request);
    // The snapshot is no variable of this function, because a slow reader would keep it: ten times the size of its gzip
    // body.
    const answer = await currentList(response, list).then((snapshot) => listFor(request, snapshot, selection));
    if (hasWaited(response)) await admission.reverifyCaller(contextOf(response));
    const { headers, body } = answer;
    if (body) await sendBody(request, response, body, headers, { pinnedBodies, stallTimeoutMs });
    else response.writeHead(304, headers).end();
  };
}

/** The answer to a reader of the list: headers, and a body unless the reader has it already. */
interface ListAnswer {
  readonly headers: string[];
  readonly body?: Body;
}

function listFor(
  request: Request,
  snapshot: Snapshot,
  selection: ListSelection | undefined,
): ListAnswer | Promise<ListAnswer> {
  const isGzip = selection?.petIds === undefined && acceptsGzip(request);
  const etag = isGzip ? snapshot.gzipEtag : snapshot.etag;
  const headers = ["ETag", etag, "Vary", "Accept-Encoding", "Cache-Control", "private, no-cache"];
  // The tag of either coding names the same revision.
  if (matchesEtag(request.headers["if-none-match"], snapshot.etag, snapshot.gzipEtag)) return { headers };
  if (selection?.petIds) return { headers, body: entriesOf(snapshot, selection.petIds) };
  const page = selection && pageOf(snapshot, selection.range);
  if (page?.last !== undefined) {
    headers.push("Link", `<?limit=${selection!.range!.limit}&after=${page.last}>; rel="next"`);
  }
  const entries = page ?? snapshot;
  if (!isGzip) return { headers, body: entries.plain() };
  return entries.gzip().then((body) => ({ headers: [...headers, "Content-Encoding", "gzip"], body }));
}

/** Renders the entries with these petIds that exist. */
function entriesOf({ chunks }: Snapshot, petIds: readonly bigint[]): Body {
  return bodyOfText(`[${petIds.flatMap((petId) => findEntry(chunks, petId)?.json ?? []).join()}]`);
}

/** The longest `If-None-Match`, in characters, that is kept while its request is held. */
const maxWaitingTags = 1_024;

/** GET /inventory/{petId}: one entry, at least as new as the request. */
export function getInventoryItem({
  list,
  admission,
  longPolls,
}: Pick<ReadInventoryOptions, "list" | "admission" | "longPolls">): RequestHandler {
  return async (request, response) => {
    const petId = readPetId(request.params.petId);
    const ifNoneMatch = request.headers["if-none-match"];
    const isUnchanged = ({ chunks }: Snapshot) => isKnown(ifNoneMatch, findEntry(chunks, petId));
    const mayWait = ifNoneMatch !== undefined && ifNoneMatch.length <= maxWaitingTags;
    const applied = mayWait ? await longPolls.holdUntilChange(request, response, { petId, isUnchanged }) : [];
    const entry = findEntry((await currentList(response, list)).chunks, petId);
    if (hasWaited(response)) await admission.reverifyCaller(contextOf(response));
    if (!entry) throw noEntry(petId);
    const headers = ["ETag", entryEtag(entry.revision), "Cache-Control", "private, no-cache", ...applied];
    if (isKnown(ifNoneMatch, entry)) response.writeHead(304, headers).end();
    else writeJson(request, response, 200, entry.json, headers);
  };
}

function isKnown(ifNoneMatch: string | undefined, entry: RenderedEntry | undefined): boolean {
  return entry !== undefined && matchesEtag(ifNoneMatch, entryEtag(entry.revision));
}

/** GET /inventory/changes: the difference between the list of an ETag and the present one. */
export function listInventoryChanges(options: ReadInventoryOptions): RequestHandler {
  const { list, admission, pinnedBodies, longPolls, stallTimeoutMs } = options;
  return async (request, response) => {
    const since = readSince(queryOf(request));
    const isUnchanged = (snapshot: Snapshot) => isAt(snapshot, since);
    const applied = await longPolls.holdUntilChange(request, response, { petId: undefined, isUnchanged });
    await currentList(response, list); // brings the list up to date; `changesSince` reads it from memory
    const body = await list.changesSince(since);
    if (hasWaited(response)) {
      pinBody(request, response, body, pinnedBodies); // also while the look-up waits
      await admission.reverifyCaller(contextOf(response));
    }
    const headers = ["Cache-Control", "private, no-cache", ...applied];
    await sendBody(request, response, body, headers, { pinnedBodies, stallTimeoutMs });
  };
}

/** The list at least as new as a request; admission may have begun the check for it. */
function currentList(response: Response, list: Pick<StockList, "readFresh">): Promise<Snapshot> {
  const context = contextOf(response);
  const begun = context.prefetched as Promise<Snapshot> | undefined;
  context.prefetched = undefined; // a long response must not keep the list alive: what it sends is counted by `pinnedBodies`
  return begun ?? list.readFresh(context.arrivedMs);
}

/** Counts a body as pinned until its response has closed. */
function pinBody(request: Request, response: Response, body: Body, pinnedBodies: PinnedBodies): void {
  if (body.text !== undefined || request.method === "HEAD") return;
  if (response.destroyed) return; // the client has left, and no event would release it
  // Ends the connection: in an app around the gateway, a response that waits for its turn on it cannot end alone.
  const cutOff = () => request.socket.destroy();
  response.once("close", pinnedBodies.pin(body, contextOf(response).principal!.accountId, cutOff));
}

/** Answers 200 with a body. @returns a promise for a long one */
export function sendBody(
  request: Request,
  response: Response,
  body: Body,
  headers: readonly string[],
  { pinnedBodies, stallTimeoutMs }: Pick<ListInventoryOptions, "pinnedBodies" | "stallTimeoutMs">,
): Promise<void> | undefined {
  if (response.destroyed) return undefined;
  pinBody(request, response, body, pinnedBodies);
  response.writeHead(200, ["Content-Type", jsonType, "Content-Length", String(body.length), ...headers]);
  if (request.method === "HEAD") response.end();
  else if (body.text !== undefined) response.end(body.text, "latin1");
  else return streamBody(response, body, { stallTimeoutMs });
  return undefined;
}

/** A selection from the list: the entries with some petIds, or a page. */
type ListSelection =
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
function readListSelection(request: IncomingMessage): ListSelection | undefined {
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
  const petIds = new Set<bigint>();
  for (const part of text.split(",")) {
    const petId = parsePetId(part);
    if (petId === undefined)
      throw invalid("petIds must be int64s in decimal, comma-separated without blanks, as in petIds=42,1001.");
    petIds.add(petId);
  }
  if (petIds.size > maxPetIds) throw invalid(`petIds may name at most ${maxPetIds} entries.`);
  return [...petIds].sort((a, b) => (a < b ? -1 : 1));
}

function readAfter(text: string | undefined): bigint {
  const after = text === undefined ? minPetId - 1n : parsePetId(text);
  if (after !== undefined) return after;
  throw invalid("after must be an int64 in decimal: the petId that the page begins after.");
}

function invalid(message: string): ApiError {
  return new ApiError("invalid_request", { message });
}

/** What is between the quotes of the list's ETag, in either coding. */
const listTag = /^(?<epoch>[\x21\x23-\x7e]{8})-(?<revision>0|[1-9]\d{0,18})(?:-gzip)?$/;

/**
 * Reads `since` of a query: an ETag of the list, also one that a proxy has made weak, with or without its quotes.
 *
 * @throws ApiError invalid_request for none, several, and what is no ETag of the list
 */
function readSince(query: URLSearchParams): ListTag {
  const [since = "", ...others] = query.getAll("since");
  const text = /^(?:W\/)?"(.*)"$/.exec(since)?.[1] ?? since;
  const tag = others.length === 0 ? listTag.exec(text)?.groups : undefined;
  if (tag) return { epoch: tag.epoch!, revision: BigInt(tag.revision!) };
  throw new ApiError("invalid_request", {
    message: "since must be one ETag of the list, percent-encoded, as in /inventory/changes?since=4f2c9a01-318.",
  });
}
