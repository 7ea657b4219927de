/** What the gateway knows of a request: made at its arrival, filled in on its way, read by the log at its end. */
import { type OutgoingHttpHeader, type OutgoingHttpHeaders, ServerResponse } from "node:http";
import { lookUpMaxAgeMs } from "../accounts/keys/authenticator.ts";
import type { Principal } from "../accounts/keys/principal.ts";
import type { ErrorCode } from "./api-error.ts";

/** Headers as name, value, name, value: the form that costs Node least. */
export type HeaderList = readonly string[];

/** A window of the caller's account, as the limit headers show it. */
export interface ShownWindow {
  readonly name: string;
  /** Requests that it admits. */
  readonly limit: number;
  /** Requests that were charged to it, as far as this gateway has heard. */
  readonly used: number;
  /** Requests that it still admits here. A gateway that decides on its own has only its share of what is left. */
  readonly remaining: number;
  /** Unix milliseconds at which it ends. */
  readonly resetAtMs: number;
}

export interface RequestContext {
  readonly requestId: string;
  clientAddress: string;
  /**
   * `performance.now()` at the arrival, from which durations and deadlines count. Set again when a held request goes
   * on.
   */
  arrivedMs: number;
  /**
   * The operation (for a 405 the path's first one), `docs` or `unknown`: the label `route` of metrics and logs. It is
   * `unknown` until the request is admitted, so for every 401, 403 and 429 of admission, except those of the
   * documentation.
   */
  operationName: string;
  /** The code of the error that answers the request, for the log; undefined without one. */
  errorCode: ErrorCode | undefined;
  /** The limit headers: empty at first, then those of the account, of a guard or of the client's address. */
  limitHeaders: HeaderList;
  /** The windows of those headers: filled in for an uncharged request, and for a held one that goes on; else empty. */
  shownWindows: readonly ShownWindow[];
  /** The headers that announce the end of the operation; empty for one that stays. */
  deprecationHeaders: HeaderList;
  /** The bearer token; empty without one, and until admission has read it. */
  token: string;
  /** The caller; undefined until admission has found it. */
  principal: Principal | undefined;
  /**
   * The time from which the request is not counted as load, by `performance.now()`, because it waits for its body, a
   * change, the end of an outage or a slow upstream. `Infinity` for any other.
   */
  waitsForOthersFromMs: number;
  /** True once the client has sent a lot more, or has ended its side: a long poll is then answered at once. */
  isHurried: boolean;
  /** Called when `isHurried` becomes true. */
  onHurry: (() => void) | undefined;
  /** Result of the operation's prefetch, which runs in parallel with the decision about the limits. */
  prefetched: Promise<unknown> | undefined;
}

const contextKey = Symbol("petstore request");

type WithContext = ServerResponse & { [contextKey]?: RequestContext };

/** Gives a response its context. Not in `response.locals`: those belong to the app around the gateway. */
export function setContext(response: ServerResponse, context: RequestContext): void {
  (response as WithContext)[contextKey] = context;
}

/** Whether a request waits for something other than this thread. False for one that has not reached the router. */
export function waitsForOthers(response: ServerResponse): boolean {
  const context = (response as WithContext)[contextKey];
  return context !== undefined && context.waitsForOthersFromMs <= performance.now();
}

/** Makes a held request answer at once. Does nothing for a response that has not reached the router. */
export function hurry(response: ServerResponse): void {
  const context = (response as WithContext)[contextKey];
  if (!context) return;
  context.isHurried = true;
  context.onHurry?.();
}

/** The context of a response that has reached the router. */
export function contextOf(response: ServerResponse): RequestContext {
  return (response as WithContext)[contextKey]!;
}

/**
 * After so long a wait the key of a request is looked at again: a revocation has to hold within 10 s, and the look-up
 * may have been `lookUpMaxAgeMs` old.
 */
const longWaitMs = 10_000 - lookUpMaxAgeMs;

/**
 * Whether a request had to wait, such as for the end of an outage or for an upstream. Then its key is looked at again
 * before the answer, or the change, goes out: a revoked key must not read or write.
 */
export function hasWaited(response: ServerResponse): boolean {
  return performance.now() - contextOf(response).arrivedMs > longWaitMs;
}

/**
 * Settles as a read does, but looks again at the key of a request that had to wait for it. A revoked key gets 401
 * whatever the read has ended with: an error tells of the stock, too.
 *
 * @param reverify rejects for a key that must not read
 */
export async function reverifyAfter<T>(
  read: Promise<T>,
  response: ServerResponse,
  reverify: (context: RequestContext) => Promise<void>,
): Promise<T> {
  try {
    return await read;
  } finally {
    if (hasWaited(response)) await reverify(contextOf(response));
  }
}

type WriteHead = (
  this: ServerResponse,
  status: number,
  reasonOrHeaders?: string | OutgoingHttpHeaders | OutgoingHttpHeader[],
  headers?: OutgoingHttpHeaders | OutgoingHttpHeader[],
) => ServerResponse;

/**
 * Adds `X-Request-Id`, the limit headers and those of a deprecation to the head of this response, whatever code writes
 * it. They replace headers of the same name that were set on the response before. Those in the list that `writeHead`
 * gets are sent beside them, as the `Link` of an error is.
 */
export function addCommonHeaders(response: ServerResponse): void {
  const own = Object.hasOwn(response, "writeHead") ? (response.writeHead as WriteHead) : undefined;
  response.writeHead = (own ? writeHeadBefore(own) : writeHead) as ServerResponse["writeHead"];
}

const writeHead: WriteHead = function (status, reasonOrHeaders, headers) {
  return ServerResponse.prototype.writeHead.call(this, status, headOf(this, reasonOrHeaders, headers) as string[]);
};

/**
 * Makes a `writeHead` for an app whose middleware has replaced Node's, to take times or to set cookies (`morgan`,
 * `response-time` and sessions, by `on-headers`). Such middleware reads only headers that are set on the response, so
 * the head is set there first.
 */
function writeHeadBefore(theirs: WriteHead): WriteHead {
  return function (status, reasonOrHeaders, headers) {
    const head = headOf(this, reasonOrHeaders, headers);
    for (let i = 0; i < head.length; i += 2) this.removeHeader(String(head[i]));
    for (let i = 0; i < head.length; i += 2) this.appendHeader(String(head[i]), String(head[i + 1]));
    // `no-transform` keeps `compression`, which is such middleware, from changing the bytes that the ETags stand for.
    this.setHeader("Cache-Control", [this.getHeader("Cache-Control") ?? [], "no-transform"].flat().join(", "));
    return theirs.call(this, status);
  };
}

function headOf(
  response: ServerResponse,
  reasonOrHeaders: string | OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined,
  headers: OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined,
): OutgoingHttpHeader[] {
  const given = typeof reasonOrHeaders === "object" ? reasonOrHeaders : headers;
  const own = Array.isArray(given) ? given : toList(given);
  const { requestId, limitHeaders, deprecationHeaders } = contextOf(response);
  return ["X-Request-Id", requestId, ...limitHeaders, ...deprecationHeaders, ...own];
}

function toList(headers: OutgoingHttpHeaders = {}): OutgoingHttpHeader[] {
  return Object.entries(headers).flatMap(([name, value]) => (value === undefined ? [] : [name, value]));
}
