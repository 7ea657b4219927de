/** The handler of the operation that reads the changes of an entry. */
import type { IncomingMessage } from "node:http";
import type { RequestHandler } from "express";
import type { EntryThen, PastChange } from "../../../client/past-changes.ts";
import { Shares } from "../../../runtime/shares.ts";
import { unavailable } from "../../admission/admission-errors.ts";
import { queryOf, queryValue, readWholeNumber } from "../../http/query.ts";
import { contextOf, reverifyAfter } from "../../http/request-context.ts";
import { readEntryTag, readPetId } from "../input.ts";
import { entryEtag } from "../list/chunk.ts";
import { bodyOf } from "../list/snapshot.ts";
import type { StockClient } from "../stock-client.ts";
import type { ListInventoryOptions } from "./read-handlers.ts";
import { sendBody } from "./send-body.ts";

export interface HistoryOptions extends Pick<ListInventoryOptions, "admission" | "pinnedBodies" | "allowanceMs"> {
  readonly stock: Pick<StockClient, "history">;
}

const defaultLimit = 20;
const maxLimit = 100;

/**
 * Maximum histories that are read at a time. Ten services read this many at once, and one account gets at most half of
 * them. Each service lets 100 more wait, so an account that uses a few gateways leaves places there to the others.
 */
const maxReads = 20;

/** GET /inventory/{petId}/history: the changes of an entry as of the request or later, the newest first. */
export function getInventoryHistory({ stock, admission, ...sending }: HistoryOptions): RequestHandler {
  const reads = new Shares(maxReads);
  return async (request, response) => {
    const petId = readPetId(request.params.petId);
    const { limit, before } = readPage(request);
    const { accountId } = contextOf(response).principal!;
    if (!reads.take(accountId)) throw unavailable(tooMany);
    // One more than asked for tells whether there is another page.
    const page = stock.history(petId, before, limit + 1).finally(() => reads.release(accountId));
    const changes = await reverifyAfter(page, response, admission.reverifyKeyAndBan);
    const shown = changes.slice(0, limit);
    const next = changes.length > limit ? JSON.stringify(entryEtag(shown.at(-1)!.revision)) : "null";
    const body = `{"changes":[${shown.map((change) => render(change, accountId)).join()}],"next":${next}}`;
    const headers = ["Cache-Control", "private, no-cache"];
    await sendBody(request, response, bodyOf([Buffer.from(body)]), headers, sending);
  };
}

const tooMany = new Error("the account has its share of reads of histories");

/** @throws ApiError invalid_request */
function readPage(request: IncomingMessage): { readonly limit: number; readonly before: bigint | undefined } {
  const query = queryOf(request);
  const limit = queryValue(query, "limit");
  const before = queryValue(query, "before");
  return {
    limit: limit === undefined ? defaultLimit : readWholeNumber("limit", limit, maxLimit),
    before: before === undefined ? undefined : readEntryTag(before, "before"),
  };
}

/** Renders a change for an account. Of other actors it shows only their kind. */
function render({ revision, madeAt, kind, before, after, ...change }: PastChange, accountId: string): string {
  const { actor, originRequestId: requestId = null, reason = null } = change;
  const isOwn = actor.kind === "account" && actor.account === accountId;
  return JSON.stringify({
    etag: entryEtag(revision),
    at: madeAt.toISOString(),
    kind,
    ...beforeAndAfter("quantity", before, after),
    ...beforeAndAfter("status", before, after),
    ...(isOwn
      ? { by: "you", keyId: actor.keyId, requestId, reason }
      : { by: actor.kind === "account" ? "other" : actor.kind, requestId: null, reason: null }),
  });
}

function beforeAndAfter(member: keyof EntryThen, before: EntryThen | undefined, after: EntryThen | undefined) {
  return { [`${member}Before`]: before?.[member] ?? null, [`${member}After`]: after?.[member] ?? null };
}
