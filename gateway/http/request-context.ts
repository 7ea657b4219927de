/** What the gateway knows of a request: made at its arrival, filled in on its way, read by the log at its end. */
import { type OutgoingHttpHeader, type OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Principal } from "../auth/principal.ts";

/** Headers as name, value, name, value: the form that costs Node least. */
export type HeaderList = readonly string[];

export interface RequestContext {
  readonly requestId: string;
  clientAddress: string;
  /** Unix milliseconds. */
  readonly arrivedAtMs: number;
  /** The arrival by a clock that only goes forward, to measure durations by. */
  readonly startedMs: number;
  /** The name of the operation once it is admitted, or of its path's first one for a 405; `docs`; else `unknown`. */
  route: string;
  /** The limit headers: empty at first, then the account's, or those of the client's address without a valid key. */
  limits: HeaderList;
  /** The headers that announce the end of the operation; empty for one that stays. */
  deprecation: HeaderList;
  /** The caller; undefined until admission has found it. */
  principal: Principal | undefined;
  /** It waits for something that this thread does nothing for, such as its turn: no request is delayed by it. */
  isHeld: boolean;
  /** What the operation began while the limits were being decided. */
  meanwhile: Promise<unknown> | undefined;
}

const key = Symbol("petstore request");

type WithContext = ServerResponse & { [key]?: RequestContext };

/** Gives a response its context. Not in `response.locals`: those belong to the app around the gateway. */
export function setContext(response: ServerResponse, context: RequestContext): void {
  (response as WithContext)[key] = context;
}

/** Whether a response is held; it need not have passed the gateway's entrance. */
export function isHeld(response: ServerResponse): boolean {
  return (response as WithContext)[key]?.isHeld ?? false;
}

/** The context of a response that has passed the gateway's entrance. */
export function contextOf(response: ServerResponse): RequestContext {
  return (response as WithContext)[key]!;
}

/**
 * Adds `X-Request-Id`, the limit headers and those of a deprecation to the head of this response, whatever code writes
 * it: nothing can answer without them, and they win over others of the same name.
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
