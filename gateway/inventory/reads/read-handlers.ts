/** The handlers of the operations that read the inventory. */
import type { Request, RequestHandler, Response } from "express";
import type { Admission } from "../../admission/admission.ts";
import { writeJson } from "../../http/json.ts";
import { queryOf } from "../../http/query.ts";
import { acceptsGzip, matchesEtag } from "../../http/request.ts";
import { contextOf, hasWaited, reverifyAfter } from "../../http/request-context.ts";
import { readPetId } from "../input.ts";
import { entryEtag } from "../list/chunk.ts";
import { findEntry, type RenderedEntry } from "../list/chunks.ts";
import { pageOf } from "../list/page.ts";
import { type Body, bodyOfText, type Snapshot } from "../list/snapshot.ts";
import { isAt, type StockList } from "../list/stock-list.ts";
import { noEntry } from "../public-errors.ts";
import type { LongPolls } from "./long-polls.ts";
import { type ListSelection, readListSelection, readSince } from "./read-query.ts";
import { pinBody, type SendBodyOptions, sendBody } from "./send-body.ts";

export interface ListInventoryOptions extends SendBodyOptions {
  readonly list: Pick<StockList, "readFresh" | "gzipOf">;
  /** Looks again at the key of a request that had to wait. */
  readonly admission: Pick<Admission, "reverifyKeyAndBan">;
}

export interface ReadInventoryOptions extends ListInventoryOptions {
  readonly list: Pick<StockList, "readFresh" | "gzipOf" | "changesSince">;
  /** Holds the requests that prefer to wait. */
  readonly longPolls: Pick<LongPolls, "holdUntilChange">;
}

/** GET /inventory: every entry, or a selection, as of the request or later. */
export function listInventory({ list, admission, pinnedBodies, allowanceMs }: ListInventoryOptions): RequestHandler {
  return async (request, response) => {
    const selection = readListSelection(request);
    // No variable here holds the snapshot: an async function keeps its variables while a slow reader reads, and the
    // snapshot is ten times the size of its gzip body.
    const answer = currentList(response, list).then((snapshot) => listFor(request, list, snapshot, selection));
    const { headers, body } = await reverifyAfter(answer, response, admission.reverifyKeyAndBan);
    response.appendHeader("Vary", "Accept-Encoding"); // beside what an app around the gateway has named
    if (body) await sendBody(request, response, body, headers, { pinnedBodies, allowanceMs });
    else response.writeHead(304, headers).end();
  };
}

/** The answer to a reader of the list: headers, and a body unless the reader has it already. */
interface ListAnswer {
  readonly headers: string[];
  readonly body?: Body;
}

/**
 * Makes the answer to a reader of the list. It is no async function and has no closure over the snapshot: either would
 * keep the snapshot while the answer is compressed.
 */
function listFor(
  request: Request,
  list: Pick<StockList, "gzipOf">,
  snapshot: Snapshot,
  selection: ListSelection | undefined,
): ListAnswer | Promise<ListAnswer> {
  const isGzip = selection?.petIds === undefined && acceptsGzip(request);
  const headers = headersOf(isGzip ? snapshot.gzipEtag : snapshot.etag);
  // The tag of either coding names the same revision.
  if (matchesEtag(request.headers["if-none-match"], snapshot.etag, snapshot.gzipEtag)) return { headers };
  if (selection?.petIds) return { headers, body: entriesOf(snapshot, selection.petIds) };
  if (!selection) {
    if (!isGzip) return { headers, body: snapshot.plain() };
    return list.gzipOf(snapshot).then(({ etag, body }) => ({ headers: [...headersOf(etag), ...gzipCoding], body }));
  }
  const page = pageOf(snapshot, selection.range);
  if (page.nextAfter !== undefined) {
    headers.push("Link", `<?limit=${selection.range.limit}&after=${page.nextAfter}>; rel="next"`);
  }
  if (!isGzip) return { headers, body: page.plain() };
  return page.gzip().then((body) => ({ headers: [...headers, ...gzipCoding], body }));
}

function headersOf(etag: string): string[] {
  return ["ETag", etag, "Cache-Control", "private, no-cache"];
}

const gzipCoding = ["Content-Encoding", "gzip"];

/** Renders the entries with these petIds that exist. */
function entriesOf({ chunks }: Snapshot, petIds: readonly bigint[]): Body {
  return bodyOfText(`[${petIds.flatMap((petId) => findEntry(chunks, petId)?.json ?? []).join()}]`);
}

/** The longest `If-None-Match`, in characters, that is kept while its request is held. */
const maxWaitingTags = 1_024;

/** GET /inventory/{petId}: one entry, as of the request or later. */
export function getInventoryItem({
  list,
  admission,
  longPolls,
}: Pick<ReadInventoryOptions, "list" | "admission" | "longPolls">): RequestHandler {
  return async (request, response) => {
    const petId = readPetId(request.params.petId);
    const ifNoneMatch = request.headers["if-none-match"];
    const isUnchanged = ({ chunks }: Snapshot) => isUnmodified(ifNoneMatch, findEntry(chunks, petId));
    const mayWait = ifNoneMatch !== undefined && ifNoneMatch.length <= maxWaitingTags;
    const applied = mayWait ? await longPolls.holdUntilChange(request, response, { petId, isUnchanged }) : [];
    const current = currentList(response, list).then(({ chunks }) => findEntry(chunks, petId));
    const entry = await reverifyAfter(current, response, admission.reverifyKeyAndBan);
    if (!entry) throw noEntry(petId);
    const headers = ["ETag", entryEtag(entry.revision), "Cache-Control", "private, no-cache", ...applied];
    if (isUnmodified(ifNoneMatch, entry)) response.writeHead(304, headers).end();
    else writeJson(request, response, 200, entry.json, headers);
  };
}

function isUnmodified(ifNoneMatch: string | undefined, entry: RenderedEntry | undefined): boolean {
  return entry !== undefined && matchesEtag(ifNoneMatch, entryEtag(entry.revision));
}

/** GET /inventory/changes: the difference between the list of an ETag and the present one. */
export function listInventoryChanges(options: ReadInventoryOptions): RequestHandler {
  const { list, admission, pinnedBodies, longPolls, allowanceMs } = options;
  return async (request, response) => {
    const since = readSince(queryOf(request));
    const isUnchanged = (snapshot: Snapshot) => isAt(snapshot, since);
    const applied = await longPolls.holdUntilChange(request, response, { petId: undefined, isUnchanged });
    const changes = async () => {
      await currentList(response, list); // brings the list up to date; `changesSince` reads it from memory
      const { accountId } = contextOf(response).principal!;
      const body = await list.changesSince(since, { accountId, hasLeft: () => response.destroyed });
      if (hasWaited(response)) pinBody(request, response, body, pinnedBodies); // the look-up of the key may take long
      return body;
    };
    const body = await reverifyAfter(changes(), response, admission.reverifyKeyAndBan);
    const headers = ["Cache-Control", "private, no-cache", ...applied];
    await sendBody(request, response, body, headers, { pinnedBodies, allowanceMs });
  };
}

/** The list at least as new as a request; admission may have begun the check for it. */
function currentList(response: Response, list: Pick<StockList, "readFresh">): Promise<Snapshot> {
  const context = contextOf(response);
  const begun = context.prefetched as Promise<Snapshot> | undefined;
  // A long response must not keep the list alive: what it sends is counted by `pinnedBodies`.
  context.prefetched = undefined;
  return begun ?? list.readFresh(context.arrivedMs);
}
