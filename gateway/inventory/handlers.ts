/** The handlers of the two inventory operations. */
import type { RequestHandler } from "express";
import { ApiError } from "../http/errors.ts";
import { readBody } from "../http/request.ts";
import { contextOf } from "../http/request-context.ts";
import { acceptsGzip, jsonType, matchesEtag, writeJson } from "../http/respond.ts";
import { checkMediaType, parseStockUpdate, readPetId, readPrecondition } from "./input.ts";
import { renderItem } from "./list/chunk.ts";
import type { HeldVersions } from "./list/held-versions.ts";
import type { Body, Snapshot } from "./list/snapshot.ts";
import type { StockList } from "./list/stock-list.ts";
import type { StockClient } from "./stock-client.ts";
import { streamBody } from "./stream-body.ts";

export interface ListInventoryOptions {
  readonly list: Pick<StockList, "current">;
  /** Bounds the memory of versions that slow readers still read. */
  readonly held: HeldVersions;
  /** A reader that takes nothing in this time is cut off, and so is one that takes too little for long. */
  readonly stallTimeoutMs: number;
}

/** GET /inventory: every entry, at least as new as the request. */
export function listInventory({ list, held, stallTimeoutMs }: ListInventoryOptions): RequestHandler {
  return async (request, response) => {
    const context = contextOf(response);
    const snapshot = await ((context.meanwhile as Promise<Snapshot> | undefined) ?? list.current(context.startedMs));
    context.meanwhile = undefined; // a long response must not keep the list alive: what it sends is counted by `held`
    const isGzip = acceptsGzip(request);
    const etag = isGzip ? snapshot.gzipEtag : snapshot.etag;
    const headers = ["ETag", etag, "Vary", "Accept-Encoding", "Cache-Control", "private, no-cache"];
    // The tag of either coding names the same revision.
    if (matchesEtag(request.headers["if-none-match"], snapshot.etag, snapshot.gzipEtag)) {
      response.writeHead(304, headers).end();
      return;
    }
    const body: Body = isGzip ? await snapshot.gzip() : snapshot.plain();
    if (response.destroyed) return; // the client has left, and no event would release what is held for it
    if (body.text === undefined && request.method !== "HEAD") {
      response.once(
        "close",
        // The connection, because a response that waits for its turn there cannot be ended alone.
        held.hold(body, context.principal!.accountId, () => request.socket.destroy()),
      );
    }
    if (isGzip) headers.push("Content-Encoding", "gzip");
    response.writeHead(200, ["Content-Type", jsonType, "Content-Length", String(body.length), ...headers]);
    if (request.method === "HEAD") response.end();
    else if (body.text !== undefined) response.end(body.text, "latin1");
    else await streamBody(response, body, { stallTimeoutMs });
  };
}

export interface UpdateInventoryOptions {
  readonly stock: Pick<StockClient, "update">;
  /** How long the body may take to arrive. */
  readonly bodyTimeoutMs: number;
}

/** PATCH /inventory/{petId}: sets the quantity of one entry. */
export function updateInventory({ stock, bodyTimeoutMs }: UpdateInventoryOptions): RequestHandler {
  return async (request, response) => {
    const petId = readPetId(request.params.petId);
    checkMediaType(request.headers["content-type"], request.headers["content-encoding"]);
    const precondition = readPrecondition(request.headers);
    const { startedMs } = contextOf(response);
    const isWhole = request.complete;
    const quantity = parseStockUpdate(await readBody(request, bodyTimeoutMs));
    const arrivedMs = isWhole ? startedMs : performance.now(); // the time for a slow body is its client's
    const update = { petId, quantity, expectedRevisions: precondition?.revisions };
    const item = await stock
      .update(update, arrivedMs, () => !response.destroyed)
      .catch((error) => {
        if (!precondition || (error as ApiError).code !== "precondition_failed") throw error;
        throw new ApiError("precondition_failed", { message: precondition.unmet, cause: error });
      });
    writeJson(request, response, 200, renderItem(item), ["ETag", entryEtag(item.revision)]);
  };
}

/** Strong tag of an entry at a revision, for `If-Match`. */
function entryEtag(revision: bigint): string {
  return `"r${revision}"`;
}
