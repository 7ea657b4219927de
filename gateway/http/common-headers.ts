/** Puts the headers that every response carries into its head. */
import { type OutgoingHttpHeader, type OutgoingHttpHeaders, ServerResponse } from "node:http";
import { contextOf } from "./request-context.ts";

/**
 * Adds `X-Request-Id`, the limit headers and those of a deprecation to the head of this response, whatever code writes it: nothing can answer
 * without them, and they win over others of the same name.
 */
export function addCommonHeaders(response: ServerResponse): void {
  response.writeHead = writeHead as ServerResponse["writeHead"];
  // `compression` in the app around this one holds `drain` back until its own `writeHead` is called, which no longer
  // happens. Nothing is left for it to compress.
  if (Object.hasOwn(response, "on")) response.on = ServerResponse.prototype.on as ServerResponse["on"];
}

function writeHead(
  this: ServerResponse,
  status: number,
  reasonOrHeaders?: string | OutgoingHttpHeaders | OutgoingHttpHeader[],
  headers?: OutgoingHttpHeaders | OutgoingHttpHeader[],
): ServerResponse {
  const own = typeof reasonOrHeaders === "object" ? reasonOrHeaders : headers;
  const { requestId, limits, deprecation } = contextOf(this);
  const head = ["X-Request-Id", requestId, ...limits, ...deprecation, ...(Array.isArray(own) ? own : toList(own))];
  return ServerResponse.prototype.writeHead.call(this, status, head as string[]);
}

function toList(headers: OutgoingHttpHeaders = {}): OutgoingHttpHeader[] {
  return Object.entries(headers).flatMap(([name, value]) => (value === undefined ? [] : [name, value]));
}
