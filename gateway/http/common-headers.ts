import { type OutgoingHttpHeader, type OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Response } from "express";
import type { Locals } from "./request-context.ts";

/** Headers as name, value, name, value: the form that costs Node least. */
export type FlatHeaders = readonly string[];

/**
 * Puts the headers that every response carries (`X-Request-Id` and those of the limits) into the head of this one,
 * whoever writes it and however: nothing can answer without them, and they win over others of the same name.
 */
export function guardHead(response: Response): void {
  response.writeHead = writeHead as Response["writeHead"];
  // `compression` in the app around this one holds `drain` back until its own `writeHead` is called, which it is not
  // any more: nothing is left for it to compress.
  if (Object.hasOwn(response, "on")) response.on = ServerResponse.prototype.on as Response["on"];
}

function writeHead(
  this: Response,
  status: number,
  reasonOrHeaders?: string | OutgoingHttpHeaders | OutgoingHttpHeader[],
  headers?: OutgoingHttpHeaders | OutgoingHttpHeader[],
): Response {
  const own = typeof reasonOrHeaders === "object" ? reasonOrHeaders : headers;
  const { requestId, limits } = this.locals as Locals;
  const head = ["X-Request-Id", requestId, ...limits, ...(Array.isArray(own) ? own : flat(own))];
  return ServerResponse.prototype.writeHead.call(this, status, head as string[]) as Response;
}

function flat(headers: OutgoingHttpHeaders = {}): OutgoingHttpHeader[] {
  return Object.entries(headers).flatMap(([name, value]) => (value === undefined ? [] : [name, value]));
}
