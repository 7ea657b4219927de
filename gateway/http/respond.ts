/** Writes responses: JSON and errors, and the checks that several kinds of responses share. */
import type { IncomingMessage, ServerResponse } from "node:http";
import Negotiator from "negotiator";
import { type ApiError, toApiError } from "./api-error.ts";
import { pathOf } from "./request.ts";
import type { HeaderList } from "./request-context.ts";

export const jsonType = "application/json";

/** Answers with JSON text; to HEAD with its headers alone. */
export function writeJson(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  body: string,
  headers: HeaderList,
): void {
  const length = Buffer.byteLength(body);
  response.writeHead(status, ["Content-Type", jsonType, "Content-Length", String(length), ...headers]);
  if (request.method === "HEAD") response.end();
  else response.end(body, length === body.length ? "latin1" : "utf8"); // ASCII goes out in one write with the head
}

/** Headers of the body that an error replaces: a handler may have set them before it failed. */
const bodyHeaders = ["ETag", "Content-Encoding", "Cache-Control", "Last-Modified"];

/**
 * Answers with an error: everything that was thrown leaves as the Error body of the contract. A response that has begun
 * is cut instead, so that a part of one never passes for a whole.
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

/**
 * Whether `If-None-Match` names one of these tags (RFC 9110 section 13.1.2): weak comparison, and `*` for any.
 *
 * @param etags tags of the current representation, with their quotes
 */
export function matchesEtag(ifNoneMatch: string | undefined, ...etags: readonly string[]): boolean {
  if (ifNoneMatch === undefined) return false;
  if (ifNoneMatch.trim() === "*") return true;
  return (ifNoneMatch.match(/"[^"]*"/g) ?? []).some((tag) => etags.includes(tag));
}

/** The longest `Accept-Encoding` that is read, in characters. Reading it costs more time than any other header. */
const maxAcceptEncoding = 1_024;

/** Whether a caller prefers gzip to the bytes as they are. */
export function acceptsGzip(request: IncomingMessage): boolean {
  const { "accept-encoding": accepted } = request.headers;
  if (accepted === undefined || accepted.length > maxAcceptEncoding) return false;
  return new Negotiator(request).encoding(["gzip", "identity"]) === "gzip";
}
