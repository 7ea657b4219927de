/** Answers invalid requests. Most of them have no response object: the answer is written to the socket. */
import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { ApiError } from "./api-error.ts";
import { peerAddress } from "./client-address.ts";
import type { Connection } from "./connection.ts";
import { jsonType } from "./json.ts";
import { acceptRequestId, tooLargeHead } from "./request.ts";
import type { HeaderList } from "./request-context.ts";

/** The options of answers to requests that do not get to their route. */
export interface InvalidRequestOptions {
  /** Idle time after which a connection is closed; above that of the load balancer in front, which must close first. */
  readonly keepAliveTimeoutMs: number;
  /**
   * Headers for refusals before authentication: the limits of the address and, for a parsed request, the deprecation of
   * its operation.
   */
  readonly headersOutsideRouter: (address: string, request?: IncomingMessage) => HeaderList;
  /** Gets every invalid request. Each one ends its connection. */
  readonly onMalformed: (error: ApiError, requestId: string) => void;
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
 * Refuses invalid HTTP, and ends the connection. When invalid bytes in a body come after the beginning of the response,
 * there is no second one: the connection ends after it.
 */
export function refuseInvalid(
  socket: Socket,
  connection: Connection | undefined,
  error: ApiError,
  { headersOutsideRouter, onMalformed, keepAliveTimeoutMs }: InvalidRequestOptions,
): void {
  if (!connection) return; // it was not let in, or has closed
  const { openResponse } = connection;
  connection.stopParsing();
  if (!socket.writable) return; // its client has left, or it has its answer and is still sending
  const id = acceptRequestId(undefined);
  onMalformed(error, id);
  if (openResponse?.headersSent) {
    socket.setTimeout(keepAliveTimeoutMs); // for an answer that never goes on
  } else {
    answerRaw(socket, error, refusalHeaders(error, id, headersOutsideRouter(peerAddress(socket)), ""));
    connection.close();
  }
}

/** The headers of an answer that no route makes. */
export function refusalHeaders(error: ApiError, id: string, limits: HeaderList, path: string): HeaderList {
  return ["X-Request-Id", id, ...limits, ...error.headersAt(path)];
}

/** Writes a whole response where none has begun. It says that it is the last on its connection. */
function answerRaw(socket: Socket, error: ApiError, headers: HeaderList): void {
  const length = String(Buffer.byteLength(error.body));
  const own = ["Content-Type", jsonType, "Content-Length", length, "Connection", "close"];
  const head = [...headers, ...own, "Date", new Date().toUTCString()];
  const lines = head.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`));
  socket.write(`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n${lines.join("")}\r\n${error.body}`);
}
