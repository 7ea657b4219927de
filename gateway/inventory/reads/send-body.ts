/** Sends the body of a read as fast as its reader takes it, and bounds what slow readers cost. */
import type { ServerResponse } from "node:http";
import type { Request, Response } from "express";
import { jsonType } from "../../http/json.ts";
import { forgetHead } from "../../http/request.ts";
import { contextOf } from "../../http/request-context.ts";
import type { PinnedBodies } from "../list/pinned-bodies.ts";
import type { Body } from "../list/snapshot.ts";

export interface SendBodyOptions {
  /** Bounds the memory of slow readers, and of the versions that they still read. */
  readonly pinnedBodies: PinnedBodies;
  /** Time that the reader of a long body gets in addition to what the least speed needs. */
  readonly allowanceMs: number;
}

/** Answers 200 with a body. @returns a promise for a long one */
export function sendBody(
  request: Request,
  response: Response,
  body: Body,
  headers: readonly string[],
  { pinnedBodies, allowanceMs }: SendBodyOptions,
): Promise<void> | undefined {
  if (response.destroyed) return undefined;
  pinBody(request, response, body, pinnedBodies);
  response.writeHead(200, ["Content-Type", jsonType, "Content-Length", String(body.length), ...headers]);
  if (request.method === "HEAD") response.end();
  else if (body.text !== undefined) response.end(body.text, "latin1");
  else {
    if (body.length > socketBufferBytes) forgetHead(request, contextOf(response)); // its reader may take an hour
    return streamBody(response, body, { allowanceMs });
  }
  return undefined;
}

/** Counts a body as pinned until its response has closed. */
export function pinBody(request: Request, response: Response, body: Body, pinnedBodies: PinnedBodies): void {
  if (body.text !== undefined || request.method === "HEAD") return;
  if (response.destroyed) return; // the client has left, and no event would release it
  // Ends the connection: in an app around the gateway, a response may still wait for its turn, and cannot end alone.
  const cutOff = () => request.socket.destroy();
  response.once("close", pinnedBodies.pin(body, contextOf(response).principal!.accountId, cutOff));
}

/** What the kernel usually takes at once: a body up to this size waits for no reader. */
const socketBufferBytes = 64 * 1024;

/** Size of one write to the kernel. It copies what the socket has room for; the rest waits as references. */
const batchBytes = 512 * 1024;

/** Bytes per second, on average over its response, that a reader has to take; a slower one is cut off. */
const leastBytesPerSecond = 16 * 1024;

interface StreamOptions extends Pick<SendBodyOptions, "allowanceMs"> {
  readonly leastBytesPerSecond?: number;
}

/**
 * Sends a body piece by piece, as fast as the reader takes it. What waits is references to the pieces, never copies.
 */
export async function streamBody(
  response: ServerResponse,
  { pieces, length }: Pick<Body, "pieces" | "length">,
  options: StreamOptions,
): Promise<void> {
  if (length > socketBufferBytes) abortWhenSlow(response, length, options);
  const closed = new Promise((resolve) => response.once("close", resolve));
  for (let i = 0; i < pieces.length; ) {
    if (response.destroyed) return;
    if (response.writableNeedDrain) {
      await Promise.race([new Promise((resolve) => response.once("drain", resolve)), closed]);
    }
    response.cork();
    // The first batch is small: readers who share a check begin in one turn of the event loop.
    const maxBytes = i === 0 ? socketBufferBytes : batchBytes;
    for (let bytes = 0; i < pieces.length && bytes < maxBytes; i++) {
      bytes += pieces[i]!.length;
      response.write(pieces[i]);
    }
    response.uncork();
  }
  response.end();
}

function abortWhenSlow(response: ServerResponse, length: number, options: StreamOptions): void {
  const { allowanceMs, leastBytesPerSecond: least = leastBytesPerSecond } = options;
  let timer: NodeJS.Timeout | undefined;
  const begin = () => {
    timer = setTimeout(() => response.destroy(), allowanceMs + (length / least) * 1_000);
  };
  if (response.socket) begin();
  else response.once("socket", begin); // in an app around the gateway: once it is the response's turn on the connection
  response.once("close", () => clearTimeout(timer));
}
