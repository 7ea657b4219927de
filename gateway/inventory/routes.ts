import type { Request, RequestHandler, Response } from "express";
import { readBody } from "../http/body.ts";
import { ApiError } from "../http/errors.ts";
import { jsonType, writeJson } from "../http/respond.ts";
import type { InventoryClient } from "./client.ts";
import { renderItem } from "./item.ts";
import type { Body, Snapshot } from "./list/snapshot.ts";
import type { StockList } from "./list/stock-list.ts";
import { parsePetId } from "./pet-id.ts";
import { sendPieces } from "./send-pieces.ts";
import { checkMediaType, parseStockUpdate } from "./stock-update.ts";

export interface ListInventoryOptions {
  readonly list: Pick<StockList, "current">;
  /** Longest wait for the list. */
  readonly timeoutMs: number;
  /** A reader that takes nothing for so long is cut off. */
  readonly stallTimeoutMs: number;
}

/** GET /inventory: every entry, not older than the request. */
export function listInventory({ list, timeoutMs, stallTimeoutMs }: ListInventoryOptions): RequestHandler {
  return async (request, response) => {
    const snapshot = await within(timeoutMs, list.current());
    response.setHeader("Vary", "Accept-Encoding");
    response.setHeader("Cache-Control", "private, no-cache");
    const zipped = wantsGzip(request);
    response.setHeader("ETag", zipped ? snapshot.gzipEtag : snapshot.etag);
    if (isKnown(request.headers["if-none-match"], snapshot)) {
      response.statusCode = 304;
      response.end();
      return;
    }
    const body: Body = zipped ? await snapshot.gzip() : snapshot.plain();
    if (zipped) response.setHeader("Content-Encoding", "gzip");
    response.setHeader("Content-Type", jsonType);
    response.setHeader("Content-Length", body.length);
    if (request.method === "HEAD") response.end();
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
    response.setHeader("ETag", entryEtag(item.revision));
    writeJson(request, response, 200, renderItem(item));
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

/**
 * The revision that `If-Match` asks for; undefined when any will do. A tag that is none of ours cannot match.
 *
 * @throws ApiError precondition_failed
 */
function parseIfMatch(header: string | undefined): bigint | undefined {
  if (header === undefined || header.trim() === "*") return undefined;
  const match = /^\s*"r(\d{1,19})"\s*$/.exec(header);
  if (!match || BigInt(match[1]!) >= 2n ** 63n) throw new ApiError("precondition_failed");
  return BigInt(match[1]!);
}

/** RFC 9110 section 13.1.2: weak comparison, and `*` for any. Either coding's tag names the same revision. */
function isKnown(ifNoneMatch: string | undefined, { etag, gzipEtag }: Snapshot): boolean {
  if (ifNoneMatch === undefined) return false;
  return ifNoneMatch
    .split(",")
    .map((tag) => tag.trim().replace(/^W\//, ""))
    .some((tag) => tag === "*" || tag === etag || tag === gzipEtag);
}

function wantsGzip(request: Request): boolean {
  if (request.headers["accept-encoding"] === undefined) return false;
  return request.acceptsEncodings(["gzip", "identity"]) === "gzip";
}

async function within<T>(timeoutMs: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new ApiError("timeout")), timeoutMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
