import type { IncomingMessage, ServerResponse } from "node:http";
import { type ApiError, toApiError } from "./errors.ts";

export const jsonType = "application/json";

/**
 * The one writer of errors: whatever was thrown leaves as the Error body of the contract, beside the headers that are
 * set already. A response that has begun is cut instead, so that half of one never passes for a whole.
 *
 * @returns the error as it was answered, for the log
 */
export function writeError(request: IncomingMessage, response: ServerResponse, thrown: unknown): ApiError {
  const error = toApiError(thrown);
  if (response.headersSent) {
    response.destroy();
    return error;
  }
  for (const name of ["ETag", "Content-Encoding", "Cache-Control"]) response.removeHeader(name);
  for (const [name, value] of Object.entries(error.headers)) response.setHeader(name, value);
  writeJson(request, response, error.status, error.body);
  return error;
}

/** Answers with JSON text; to HEAD with its headers alone. */
export function writeJson(request: IncomingMessage, response: ServerResponse, status: number, body: string): void {
  response.statusCode = status;
  response.setHeader("Content-Type", jsonType);
  response.setHeader("Content-Length", Buffer.byteLength(body));
  response.end(request.method === "HEAD" ? undefined : body);
}
