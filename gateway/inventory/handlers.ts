import type { Request, RequestHandler, Response } from "express";
import Negotiator from "negotiator";
import { readBody } from "../http/body.ts";
import { matchesEtag } from "../http/etag.ts";
import { pathOf } from "../http/path.ts";
import type { Locals } from "../http/request-context.ts";
import { jsonType, writeJson } from "../http/respond.ts";
import { renderItem } from "./item.ts";
import type { HeldVersions } from "./list/held-versions.ts";
import type { Body } from "./list/snapshot.ts";
import type { StockList } from "./list/stock-list.ts";
import { parsePetId } from "./pet-id.ts";
import type { InventoryClient } from "./stock-client.ts";
import { checkMediaType, parseStockUpdate } from "./stock-update.ts";
import { sendPieces } from "./stream-body.ts";

export interface ListInventoryOptions {
  readonly list: Pick<StockList, "current">;
  /** Bounds the memory of versions that slow readers still take. */
  readonly held: HeldVersions;
  /** A reader that takes nothing for so long is cut off. */
  readonly stallTimeoutMs: number;
}

/**
 * Asks for the list as soon as a request has shown a good key, while its limits are still being decided: what it waits
 * for is the slower of the two and not their sum, and more requests share a check.
 */
export function askAhead(list: Pick<StockList, "current">): (request: Request, response: Response) => void {
  return (request, response) => {
    const locals = response.locals as Locals;
    if (pathOf(request) !== "/v1/inventory" || (request.method !== "GET" && request.method !== "HEAD")) return;
    if (response.destroyed || !locals.principal.scopes.has("inventory:read")) return;
    locals.list = list.current();
    locals.list.catch(() => {}); // a request that is refused asks no more
  };
}

/** GET /inventory: every entry, not older than the request. */
export function listInventory({ list, held, stallTimeoutMs }: ListInventoryOptions): RequestHandler {
  return async (request, response) => {
    const locals = response.locals as Locals;
    const snapshot = await (locals.list ?? list.current());
    locals.list = undefined; // a response may be long, and its list is not what is sent
    const zipped = wantsGzip(request);
    const etag = zipped ? snapshot.gzipEtag : snapshot.etag;
    const common = ["ETag", etag, "Vary", "Accept-Encoding", "Cache-Control", "private, no-cache"];
    // Either coding's tag names the same revision.
    if (matchesEtag(request.headers["if-none-match"], snapshot.etag, snapshot.gzipEtag)) {
      response.writeHead(304, common).end();
      return;
    }
    const body: Body = zipped ? await snapshot.gzip() : snapshot.plain();
    if (response.destroyed) return; // the client has left, and no event would end what is held for it
    if (body.text === undefined && request.method !== "HEAD") response.once("close", held.hold(body));
    if (zipped) common.push("Content-Encoding", "gzip");
    response.writeHead(200, ["Content-Type", jsonType, "Content-Length", String(body.length), ...common]);
    if (request.method === "HEAD") response.end();
    else if (body.text !== undefined) response.end(body.text, "latin1");
    else await sendPieces(response, body.pieces, stallTimeoutMs);
  };
}

export interface UpdateInventoryOptions {
  readonly client: Pick<InventoryClient, "update">;
  /** How long the body may take to arrive. */
  readonly bodyTimeoutMs: number;
}

/** PATCH /inventory/{petId}: sets the quantity of one entry. */
export function updateInventory({ client, bodyTimeoutMs }: UpdateInventoryOptions): RequestHandler {
  return async (request, response) => {
    const petId = parsePetId(String(request.params.petId));
    checkMediaType(request.headers["content-type"], request.headers["content-encoding"]);
    const expectedRevision = parseIfMatch(request.headers["if-match"]);
    const quantity = parseStockUpdate(await readBody(request, bodyTimeoutMs));
    const item = await client.update({ petId, quantity, expectedRevision });
    writeJson(request, response, 200, renderItem(item), ["ETag", entryEtag(item.revision)]);
  };
}

/** Checks the petId of a path for a route that does not use it itself. */
export const checkPetId: RequestHandler = (request: Request, _response: Response, next) => {
  parsePetId(String(request.params.petId));
  next();
};

function entryEtag(revision: bigint): string {
  return `"r${revision}"`;
}

/** No entry is ever at it. */
const noRevision = -1n;

/**
 * The revision that `If-Match` asks for; undefined when any will do. A tag that is none of ours matches no entry, and
 * what is wrong with the request otherwise, or that there is no entry, comes before that (RFC 9110 section 13.2.1).
 */
function parseIfMatch(header: string | undefined): bigint | undefined {
  if (header === undefined || header.trim() === "*") return undefined;
  const match = /^\s*"r(0|[1-9]\d{0,18})"\s*$/.exec(header);
  return match && BigInt(match[1]!) < 2n ** 63n ? BigInt(match[1]!) : noRevision;
}

function wantsGzip(request: Request): boolean {
  if (request.headers["accept-encoding"] === undefined) return false;
  return new Negotiator(request).encoding(["gzip", "identity"]) === "gzip";
}
