/** Finds and answers what is no valid request. Most of it has no response object: the answer is written to its socket. */
import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { ApiError } from "./api-error.ts";
import { peerAddress } from "./client-address.ts";
import type { Connection } from "./connection.ts";
import { requestId } from "./request.ts";
import type { HeaderList } from "./request-context.ts";
import { jsonType } from "./respond.ts";

/** Header lines that a request may have. Each one costs memory and time, however short it is. */
export const maxHeaderLines = 100;

/** A registered name or an address, and a port (RFC 9110 section 7.2, RFC 3986 section 3.2). It may be empty. */
const hostPattern = /^(?:\[[\w.:~!$&'()*+,;=-]*\]|[\w.~!$&'()*+,;=%-]*)(?::\d*)?$/;

export const invalidTarget = new ApiError("invalid_request", {
  message: "The target of the request is not a valid URL.",
});
// RFC 9110 section 15.6.6
const otherVersion = new ApiError("invalid_request", { status: 505, message: "The API takes HTTP/1.0 and HTTP/1.1." });
const tooLargeHead = (cause?: Error) =>
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

/** What every answer to a request that does not get to its route needs. */
export interface InvalidRequestOptions {
  /** Idle time after which a connection is closed; above that of the load balancer in front, which must close first. */
  readonly keepAliveTimeoutMs: number;
  /**
   * Headers for refusals before authentication: the limits of the address and, for a valid request, the deprecation of
   * its operation.
   */
  readonly headersFor: (address: string, request?: IncomingMessage) => HeaderList;
  /** Gets every invalid request. Each one ends its connection. */
  readonly onMalformed: (error: ApiError, requestId: string) => void;
}

/**
 * The fault of a request that Node's parser has let through; undefined for a valid one. A target that is a URL without
 * a valid host, or that has a fragment (RFC 9112 section 3.2), is taken out of the request: `url.parse`, which Express
 * uses for both, may print it, with what is secret in it.
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

/** The public error for what Node's parser found wrong. */
export function parserError(cause: NodeJS.ErrnoException): ApiError {
  switch (cause.code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new ApiError("timeout", { status: 408, message: "The request did not arrive in time.", cause });
    case "HPE_HEADER_OVERFLOW":
      return tooLargeHead(cause);
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return new ApiError("payload_too_large", { cause });
    default:
      return new ApiError("invalid_request", { message: "The request is not valid HTTP/1.1.", cause });
  }
}

/**
 * Refuses invalid HTTP, and ends the connection. When invalid bytes in a body come after the begin of the response,
 * there is no second one: the connection ends after it.
 */
export function refuseInvalid(
  socket: Socket,
  connection: Connection | undefined,
  error: ApiError,
  { headersFor, onMalformed, keepAliveTimeoutMs }: InvalidRequestOptions,
): void {
  if (!connection) return; // it was not let in, or has closed
  const { open } = connection;
  connection.stopParsing();
  if (!socket.writable) return; // its client has left, or it has its answer and is still sending
  const id = requestId(undefined);
  onMalformed(error, id);
  if (open?.headersSent) {
    socket.setTimeout(keepAliveTimeoutMs); // for an answer that never goes on
  } else {
    answerRaw(socket, error, refusalHeaders(error, id, headersFor(peerAddress(socket)), ""));
    connection.close();
  }
}

/** The headers of an answer that no route makes. */
export function refusalHeaders(error: ApiError, id: string, limits: HeaderList, path: string): HeaderList {
  return ["X-Request-Id", id, ...limits, ...error.headersAt(path)];
}

/** Writes a whole response, of which nothing has been written. It says that it is the last on its connection. */
function answerRaw(socket: Socket, error: ApiError, headers: HeaderList): void {
  const length = String(Buffer.byteLength(error.body));
  const own = ["Content-Type", jsonType, "Content-Length", length, "Connection", "close"];
  const head = [...headers, ...own, "Date", new Date().toUTCString()];
  const lines = head.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`));
  socket.write(`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n${lines.join("")}\r\n${error.body}`);
}
