/** Takes and reads the bodies of requests. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { ApiError } from "./api-error.ts";
import { contextOf, type RequestContext } from "./request-context.ts";

export interface WholeBodyOptions {
  /** Looks again at an API key that may have been revoked since its request began, and rejects if it was. */
  readonly admission: { readonly reverifyKeyAndBan: (context: RequestContext) => Promise<void> };
  /** How long the body may take to arrive. */
  readonly bodyTimeoutMs: number;
}

/**
 * Reads the whole body of a request that changes something, at most 16 KiB. A slow body is the client's own delay: the
 * deadline counts from when it is complete. The API key is looked at again then, and so is whether the client is still
 * there.
 *
 * @returns the body, and when its request was complete, by `performance.now()`
 * @throws ApiError payload_too_large, timeout (408) for a body that is too slow, invalid_request for one that breaks
 *   off and for a client that has left; what `reverifyKeyAndBan` throws
 */
export async function readWholeBody(
  request: IncomingMessage,
  response: ServerResponse,
  { admission, bodyTimeoutMs }: WholeBodyOptions,
): Promise<{ readonly body: Buffer; readonly completeMs: number }> {
  const context = contextOf(response);
  if (request.complete) return { body: await readBody(request, bodyTimeoutMs), completeMs: context.arrivedMs };
  context.waitsForOthersFromMs = performance.now();
  const body = await readBody(request, bodyTimeoutMs);
  context.waitsForOthersFromMs = Number.POSITIVE_INFINITY;
  const completeMs = performance.now();
  await admission.reverifyKeyAndBan(context);
  if (response.destroyed) throw new ApiError("invalid_request", { message: "The caller has left." });
  return { body, completeMs };
}

const maxBodyBytes = 16 * 1024;

/**
 * Maximum line ends in a chunked body. Each chunk has two, and takes a few microseconds to parse. After two in a row,
 * `Connection` calls the parser again, which takes nearly as long as a request.
 */
export const maxLineEnds = 4_000;

const lineEnd = Buffer.from("\r\n");
const none = Buffer.alloc(0);

const bodyKey = Symbol("petstore body");

type WithBody = IncomingMessage & { [bodyKey]?: Promise<Buffer> };

/**
 * Begins to take the body of a request, for `readWholeBody`. That of a GET or HEAD is dropped as it comes. Until a body
 * is taken, Node keeps each piece of it in a buffer of its own, and a client may send it byte by byte.
 */
export function takeBody(request: IncomingMessage): void {
  if (request.readableEnded || request.readableDidRead) return; // there is none, or something else has read it
  if (request.method === "GET" || request.method === "HEAD") request.resume();
  else (request as WithBody)[bodyKey] = collectBody(request);
}

/** @param timeoutMs how long the body may take to arrive */
async function readBody(request: IncomingMessage, timeoutMs: number): Promise<Buffer> {
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

/** Copies a body into one buffer as it comes. A body that is too large is dropped, without a wait for its end. */
function collectBody(request: IncomingMessage): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  promise.catch(() => {}); // it may never be read
  let bytes = none;
  let length = 0;
  const append = (piece: Buffer) => {
    if (length + piece.length > maxBodyBytes) {
      bytes = none;
      request.off("data", append).resume();
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

/** Counts the line ends in a part of a chunked body, up to one too many. */
export function lineEndsIn(part: Buffer): number {
  let count = 0;
  for (let at = part.indexOf(lineEnd); at !== -1 && count <= maxLineEnds; at = part.indexOf(lineEnd, at + 2)) count++;
  return count;
}

function incomplete(): ApiError {
  return new ApiError("invalid_request", { message: "The body is incomplete." });
}

const bodyTimeout = {
  status: 408,
  message: "The body of the request did not arrive in time.",
  headers: { Connection: "close" },
} as const;
