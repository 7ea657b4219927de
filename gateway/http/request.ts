/** Reads the parts of a request that are the same for every operation: its id, key, path, query and body. */
import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import parseurl from "parseurl";
import { ApiError } from "./api-error.ts";

/**
 * An id that a caller may choose. It goes into logs and to the internal services, so nothing like an API key passes.
 */
const acceptableId = /^(?!.*ps_[a-z0-9]{1,16}_)[\w.:-]+$/;
const maxIdLength = 64;

// A random start for the process and a counter: as unique as a UUID, at a fraction of the cost.
const idPrefix = randomBytes(9).toString("base64url");
let idCount = 0;

/** The caller's `X-Request-Id` if it is acceptable, else a new one. */
export function requestId(header: string | string[] | undefined): string {
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

/** The path of a request as the router sees it; empty for a target without one. The router's parse is used again. */
export function pathOf(request: IncomingMessage): string {
  try {
    return parseurl(request)?.pathname ?? "";
  } catch {
    return ""; // the target is no valid URL
  }
}

/** The query parameters of a request. */
export function queryOf(request: IncomingMessage): URLSearchParams {
  return new URLSearchParams((parseurl(request)?.query as string | null) ?? "");
}

/** A name that an error may repeat: it is short, and nothing like an API key. */
const nameToRepeat = /^(?!.*ps_[a-z0-9]{1,16}_)[\x20-\x7e]{1,64}$/;

/**
 * Refuses a query with a parameter that the operation does not have.
 *
 * @throws ApiError invalid_request that names the parameter
 */
export function refuseUnknownParameters(request: IncomingMessage, known: readonly string[]): void {
  if (!request.url!.includes("?")) return;
  for (const name of queryOf(request).keys()) {
    if (known.includes(name)) continue;
    const has = known.length === 0 ? "takes none" : `takes ${known.join(" and ")}`;
    const message = `There is ${noneNamed("query parameter", name)}: the operation ${has}.`;
    throw new ApiError("invalid_request", { message });
  }
}

/** Words for a message about a name that a caller made up. */
export function noneNamed(kind: string, name: string): string {
  return nameToRepeat.test(name) ? `no ${kind} ${name}` : `no such ${kind}`;
}

/**
 * Reads a query parameter that may be there once.
 *
 * @throws ApiError invalid_request when it is there several times
 */
export function queryValue(query: URLSearchParams, name: string): string | undefined {
  const [value, ...others] = query.getAll(name);
  if (others.length === 0) return value;
  throw new ApiError("invalid_request", { message: `${name} may be there once.` });
}

/**
 * Reads the text of a query parameter that is a whole number from 1 to `max`.
 *
 * @throws ApiError invalid_request
 */
export function readWholeNumber(name: string, text: string, max: number): number {
  const value = /^[1-9]\d{0,8}$/.test(text) ? Number(text) : Number.NaN;
  if (value <= max) return value;
  throw new ApiError("invalid_request", { message: `${name} must be a whole number from 1 to ${max}.` });
}

const maxBodyBytes = 16 * 1024;
const none = Buffer.alloc(0);

const bodyKey = Symbol("petstore body");

type WithBody = IncomingMessage & { [bodyKey]?: Promise<Buffer> };

/**
 * Begins to take the body of a request, for `readBody`. That of a GET or HEAD is dropped as it comes. Until a body is
 * taken, Node keeps each piece of it in a buffer of its own, and a client may send it byte by byte.
 */
export function takeBody(request: IncomingMessage): void {
  if (request.readableEnded || request.readableDidRead) return; // there is none, or something else has read it
  if (request.method === "GET" || request.method === "HEAD") request.resume();
  else (request as WithBody)[bodyKey] = collectBody(request);
}

/**
 * Reads a whole request body of at most 16 KiB.
 *
 * @param timeoutMs how long the body may take to arrive
 * @throws ApiError payload_too_large, timeout (408) for a body that is too slow, or invalid_request for one that breaks
 *   off
 */
export async function readBody(request: IncomingMessage, timeoutMs: number): Promise<Buffer> {
  const body = (request as WithBody)[bodyKey];
  if (body === undefined) {
    if (request.readableEnded && !request.readableDidRead) return none; // there is no body
    const cause = new Error("something read the body before the gateway: mount the gateway before any body parser");
    throw new ApiError("internal_error", { cause });
  }
  if (Number(request.headers["content-length"] ?? 0) > maxBodyBytes) throw new ApiError("payload_too_large");
  if (request.readableEnded) return await body;
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new ApiError("timeout", bodyTimeout)), timeoutMs);
  try {
    return await Promise.race([body, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Copies a body into one buffer as it comes. One that is too large is dropped, and not waited for. */
function collectBody(request: IncomingMessage): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  promise.catch(() => {}); // it may never be read
  let bytes = none;
  let length = 0;
  const append = (piece: Buffer) => {
    if (length + piece.length > maxBodyBytes) {
      bytes = none;
      length = Number.POSITIVE_INFINITY;
      return reject(new ApiError("payload_too_large"));
    }
    if (length + piece.length > bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.min(maxBodyBytes, Math.max(2 * bytes.length, length + piece.length)));
      bytes.copy(larger);
      bytes = larger;
    }
    piece.copy(bytes, length);
    length += piece.length;
  };
  const brokenOff = () => reject(incomplete());
  request
    .on("data", append)
    .on("end", () => resolve(bytes.subarray(0, length)))
    .on("error", brokenOff)
    .on("close", () => {
      if (!request.readableEnded) brokenOff(); // an error costs a stack trace, and every request closes
    });
  return promise;
}

function incomplete(): ApiError {
  return new ApiError("invalid_request", { message: "The body is incomplete." });
}

const bodyTimeout = {
  status: 408,
  message: "The body of the request did not arrive in time.",
  headers: { Connection: "close" },
} as const;
