/** Answers with errors. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { type ApiError, toApiError } from "./api-error.ts";
import { writeJson } from "./json.ts";
import { pathOf } from "./request.ts";

/** Headers of the body that an error replaces: a handler may have set them before it failed. */
const bodyHeaders = ["ETag", "Content-Encoding", "Cache-Control", "Last-Modified"];

/**
 * Answers with an error: everything that was thrown leaves as the Error body of the public API. A response that has
 * begun is cut instead, so that a part of one never passes for a whole.
 *
 * @returns the error as it was answered, for the log
 */
export function writeError(request: IncomingMessage, response: ServerResponse, thrown: unknown): ApiError {
  const error = toApiError(thrown);
  if (response.headersSent) {
    response.destroy();
    return error;
  }
  for (const name of bodyHeaders) response.removeHeader(name);
  writeJson(request, response, error.status, error.body, error.headersAt(pathOf(request)));
  return error;
}
