/** Reads and checks the parts of a request that are the same for every operation: head, id, key and path. */
import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import Negotiator from "negotiator";
import parseurl from "parseurl";
import { ApiError } from "./api-error.ts";

/** Header lines that a request may have. Each one costs memory and time, however short it is. */
export const maxHeaderLines = 100;

/** A registered name or an address, and a port (RFC 9110 section 7.2, RFC 3986 section 3.2). It may be empty. */
const hostPattern = /^(?:\[[\w.:~!$&'()*+,;=-]*\]|[\w.~!$&'()*+,;=%-]*)(?::\d*)?$/;

export const invalidTarget = new ApiError("invalid_request", {
  message: "The target of the request is not a valid URL.",
});
// RFC 9110 section 15.6.6
const otherVersion = new ApiError("invalid_request", { status: 505, message: "The API takes HTTP/1.0 and HTTP/1.1." });
export const tooLargeHead = (cause?: Error) =>
  new ApiError("payload_too_large", {
    status: 431,
    message: `The head of the request is larger than 16 KiB or has more than ${maxHeaderLines} lines.`,
    cause,
  });
// RFC 9112 section 6.1
const otherCoding = new ApiError("invalid_request", { status: 501, message: "The only transfer coding is chunked." });
const oldChunks = new ApiError("invalid_request", { message: "A request of HTTP/1.0 has no Transfer-Encoding." });
// RFC 9112 section 3.2
const noHost = new ApiError("invalid_request", { message: "The request has no Host header." });
const invalidHost = new ApiError("invalid_request", { message: "The Host header is not a host with a port." });

/**
 * The fault of a request that Node's parser has let through; undefined for a valid one. A target that is a URL without
 * a valid host, or that has a fragment (RFC 9112 section 3.2), is taken out of the request: Express gives such
 * targets to `url.parse`, which may print them with the secrets in them.
 */
export function requestFault(request: IncomingMessage): ApiError | undefined {
  const { httpVersion, rawHeaders, headers } = request;
  const [, host = ""] = /^[^/?#]*:\/\/([^/?#]*)/.exec(request.url!) ?? [];
  if (!hostPattern.test(host) || request.url!.includes("#")) {
    request.url = "";
    return invalidTarget;
  }
  if (rawHeaders.length > 2 * maxHeaderLines) return tooLargeHead();
  const { "transfer-encoding": coding } = headers;
  if (coding !== undefined && !/^chunked$/i.test(coding)) return otherCoding;
  if (httpVersion === "1.0") {
    if (coding !== undefined) return oldChunks;
  } else if (httpVersion !== "1.1") {
    return otherVersion;
  } else if (headers.host === undefined) {
    return noHost;
  }
  return hostPattern.test(headers.host ?? "") ? undefined : invalidHost;
}

/**
 * An id that a caller may choose. It goes into logs and to the internal services, so nothing like an API key passes.
 */
const acceptableId = /^(?!.*ps_[a-z0-9]{1,16}_)[\w.:-]+$/;
const maxIdLength = 64;

// A random start for the process and a counter: as unique as a UUID, at a fraction of the cost.
const idPrefix = randomBytes(9).toString("base64url");
let idCount = 0;

/** The caller's `X-Request-Id` if it is acceptable, else a new one. */
export function acceptRequestId(header: string | string[] | undefined): string {
  if (typeof header === "string" && header.length <= maxIdLength && acceptableId.test(header)) return header;
  idCount += 1;
  return `${idPrefix}-${idCount.toString(36)}`;
}

/**
 * The bearer token of a request (RFC 6750 section 2.1); empty for a request without one.
 *
 * @throws ApiError invalid_request for two Authorization or Host headers: a proxy in front may have read the other one
 */
export function bearerToken({ headers: { authorization = "" }, rawHeaders }: IncomingMessage): string {
  refuseDuplicates(rawHeaders);
  // Trimmed afterwards: a pattern that looks for the end itself takes time that grows with the square of the spaces.
  return /^bearer +(\S.*)$/i.exec(authorization)?.[1]?.trimEnd() ?? "";
}

/** @throws ApiError invalid_request for two Authorization or Host headers */
export function refuseDuplicates(rawHeaders: readonly string[]): void {
  let hosts = 0;
  let authorizations = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!;
    if (name.length === 4 && name.toLowerCase() === "host") hosts += 1;
    else if (name.length === 13 && name.toLowerCase() === "authorization") authorizations += 1;
  }
  if (hosts > 1) throw new ApiError("invalid_request", { message: "The request has more than one Host header." });
  if (authorizations > 1) {
    throw new ApiError("invalid_request", { message: "The request has more than one Authorization header." });
  }
}

/**
 * The path of a request as the router sees it; empty for a target without one. It reuses what the router has parsed.
 */
export function pathOf(request: IncomingMessage): string {
  try {
    return parseurl(request)?.pathname ?? "";
  } catch {
    return ""; // the target is no valid URL
  }
}

/**
 * Whether `If-None-Match` names one of these tags (RFC 9110 section 13.1.2): weak comparison, and `*` for any.
 *
 * @param etags tags of the current representation, with their quotes
 */
export function matchesEtag(ifNoneMatch: string | undefined, ...etags: readonly string[]): boolean {
  if (ifNoneMatch === undefined) return false;
  // A quote is part of no tag, so a list that has a tag's text with both quotes names that tag.
  return ifNoneMatch.trim() === "*" || etags.some((etag) => ifNoneMatch.includes(etag));
}

/** The longest `Accept-Encoding` that is read, in characters. Reading it costs more time than any other header. */
const maxAcceptEncoding = 1_024;

/** Whether a caller prefers gzip to the bytes as they are. */
export function acceptsGzip(request: IncomingMessage): boolean {
  const { "accept-encoding": accepted } = request.headers;
  if (accepted === undefined || accepted.length > maxAcceptEncoding) return false;
  return new Negotiator(request).encoding(["gzip", "identity"]) === "gzip";
}

/** A name that an error may repeat: it is short, and nothing like an API key. */
const nameToRepeat = /^(?!.*ps_[a-z0-9]{1,16}_)[\x20-\x7e]{1,64}$/;

/** Words for a message about a name that a caller made up. */
export function noneNamed(kind: string, name: string): string {
  return nameToRepeat.test(name) ? `no ${kind} ${name}` : `no such ${kind}`;
}

/** Copies a Latin-1 text that is kept for long: a part of a header would keep the whole header in memory. */
export function copyOf(text: string): string {
  return Buffer.from(text, "latin1").toString("latin1");
}

/**
 * Drops what a client sent with a request. So all requests that are held, or whose answers are read slowly, cost about
 * the same. Copies of the token and the path stay, the path for the log of an app around the gateway.
 * What else of the head is needed later has to be read before, such as If-None-Match.
 */
export function forgetHead(
  request: IncomingMessage & { originalUrl?: string; _parsedUrl?: unknown },
  context: { token: string },
): void {
  context.token = copyOf(context.token);
  request.rawHeaders = [];
  request.headers = {};
  request.url = copyOf(request.url!.split("?", 1)[0]!);
  if (request.originalUrl) request.originalUrl = copyOf(request.originalUrl.split("?", 1)[0]!);
  request._parsedUrl = undefined;
}
