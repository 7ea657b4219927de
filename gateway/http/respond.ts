import type { Request, Response } from "express";
import type { FlatHeaders } from "./common-headers.ts";
import { type ApiError, toApiError } from "./errors.ts";

export const jsonType = "application/json";

/** What a handler may have said of a body that an error now takes the place of. */
const ofAnotherBody = ["ETag", "Content-Encoding", "Cache-Control", "Last-Modified"];

/**
 * The one writer of errors: whatever was thrown leaves as the Error body of the contract. A response that has begun is
 * cut instead, so that half of one never passes for a whole.
 *
 * @returns the error as it was answered, for the log
 */
export function writeError(request: Request, response: Response, thrown: unknown): ApiError {
  const error = toApiError(thrown);
  if (response.headersSent) {
    response.destroy();
    return error;
  }
  for (const name of ofAnotherBody) response.removeHeader(name);
  writeJson(request, response, error.status, error.body, Object.entries(error.headers).flat());
  return error;
}

/** Answers with JSON text; to HEAD with its headers alone. */
export function writeJson(
  request: Request,
  response: Response,
  status: number,
  body: string,
  headers: FlatHeaders,
): void {
  const length = Buffer.byteLength(body);
  response.writeHead(status, ["Content-Type", jsonType, "Content-Length", String(length), ...headers]);
  if (request.method === "HEAD") response.end();
  else response.end(body, length === body.length ? "latin1" : "utf8"); // ASCII goes out in one write with the head
}
