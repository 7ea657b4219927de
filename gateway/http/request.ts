/** Reads the parts of a request that are the same for every operation: its id, its path and its body. */
import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import parseurl from "parseurl";
import { ApiError } from "./errors.ts";

/**
 * An id that a caller may choose. It goes into logs and to the internal services, so nothing like an API key passes.
 */
const acceptableId = /^(?!.*ps_[a-z0-9]{1,16}_)[\w.:-]{1,64}$/;

// A random start for the process and a counter: as unique as a UUID, at a fraction of the cost.
const idPrefix = randomBytes(9).toString("base64url");
let idCount = 0;

/** The caller's `X-Request-Id` if it is acceptable, else a new one. */
export function requestId(header: string | string[] | undefined): string {
  if (typeof header === "string" && acceptableId.test(header)) return header;
  idCount += 1;
  return `${idPrefix}-${idCount.toString(36)}`;
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

const maxBodyBytes = 16 * 1024;

/**
 * Reads a whole request body of at most 16 KiB.
 *
 * @param timeoutMs how long the body may take to arrive
 * @throws ApiError payload_too_large, timeout (408) for a body that is too slow, or invalid_request for one that breaks
 *   off
 */
export function readBody(request: IncomingMessage, timeoutMs: number): Promise<Buffer> {
  if (request.readableDidRead) {
    const cause = new Error("something read the body before the gateway: mount the gateway before any body parser");
    return Promise.reject(new ApiError("internal_error", { cause }));
  }
  if (Number(request.headers["content-length"] ?? 0) > maxBodyBytes) {
    return Promise.reject(new ApiError("payload_too_large"));
  }
  if (request.readableEnded) return Promise.resolve(Buffer.alloc(0)); // there is no body
  if (request.destroyed) return Promise.reject(incomplete());
  // Most bodies come with the head, and nothing has to be waited for.
  if (request.complete && request.readableLength <= maxBodyBytes) {
    return Promise.resolve((request.read() as Buffer | null) ?? Buffer.alloc(0));
  }
  return collectBody(request, timeoutMs);
}

function collectBody(request: IncomingMessage, timeoutMs: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const finish = (error: ApiError | undefined) => {
      clearTimeout(timer);
      request.off("data", onData).off("end", onEnd).off("error", onGone).off("close", onGone);
      if (error) reject(error);
      else resolve(Buffer.concat(chunks));
    };
    const timer = setTimeout(() => finish(new ApiError("timeout", bodyTimeout)), timeoutMs);
    const onData = (chunk: Buffer) => {
      length += chunk.length;
      if (length > maxBodyBytes) finish(new ApiError("payload_too_large"));
      else chunks.push(chunk);
    };
    const onEnd = () => finish(undefined);
    const onGone = () => finish(incomplete());
    request.on("data", onData).on("end", onEnd).on("error", onGone).on("close", onGone);
  });
}

function incomplete(): ApiError {
  return new ApiError("invalid_request", { message: "The body is incomplete." });
}

const bodyTimeout = {
  status: 408,
  message: "The body of the request did not arrive in time.",
  headers: { Connection: "close" },
} as const;
