import type { IncomingMessage } from "node:http";
import { ApiError } from "./errors.ts";

const maxBodyBytes = 16 * 1024;

/**
 * Reads a whole request body of at most 16 KiB.
 *
 * @param timeoutMs how long the body may take to arrive
 * @throws ApiError payload_too_large, or timeout (408) when it does not arrive
 */
export function readBody(request: IncomingMessage, timeoutMs: number): Promise<Buffer> {
  if (request.readableDidRead) {
    const cause = new Error("something read the body before the gateway: mount the gateway before any body parser");
    return Promise.reject(new ApiError("internal_error", { cause }));
  }
  if (Number(request.headers["content-length"] ?? 0) > maxBodyBytes) {
    return Promise.reject(new ApiError("payload_too_large"));
  }
  if (request.readableEnded) return Promise.resolve(Buffer.alloc(0)); // it has none
  if (request.destroyed) return Promise.reject(notWhole());
  // Mostly it came with the head, and nothing has to be waited for.
  if (request.complete && request.readableLength <= maxBodyBytes) {
    return Promise.resolve((request.read() as Buffer | null) ?? Buffer.alloc(0));
  }
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const finish = (error: ApiError | undefined) => {
      clearTimeout(timer);
      request.off("data", onData).off("end", onEnd).off("error", onGone).off("close", onGone);
      if (error) reject(error);
      else resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
    };
    const timer = setTimeout(() => finish(new ApiError("timeout", bodyTimeout)), timeoutMs);
    const onData = (chunk: Buffer) => {
      length += chunk.length;
      if (length > maxBodyBytes) finish(new ApiError("payload_too_large"));
      else chunks.push(chunk);
    };
    const onEnd = () => finish(undefined);
    const onGone = () => finish(notWhole());
    request.on("data", onData).on("end", onEnd).on("error", onGone).on("close", onGone);
  });
}

function notWhole(): ApiError {
  return new ApiError("invalid_request", { message: "The body did not arrive whole." });
}

const bodyTimeout = {
  status: 408,
  message: "The body of the request did not arrive in time.",
  headers: { Connection: "close" },
} as const;
