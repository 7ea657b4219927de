import { createServer, type RequestListener, type Server } from "node:http";
import type { Duplex } from "node:stream";
import { ApiError } from "./errors.ts";
import type { FlatHeaders } from "./head.ts";
import { requestId } from "./request-id.ts";
import { jsonType } from "./respond.ts";

export interface PublicServerOptions {
  readonly handler: RequestListener;
  /** Idle time after which a connection is closed; above that of the load balancer in front, which must close first. */
  readonly keepAliveTimeoutMs: number;
  /** How long a whole request, headers and body, may take to arrive. */
  readonly requestTimeoutMs: number;
  /** The limit headers for a caller who got no further than its address. */
  readonly headersFor: (address: string) => FlatHeaders;
}

/**
 * The public HTTP server. What Node refuses before any handler sees it (a malformed or slow request) also leaves as the
 * Error body, with the limit headers of the address.
 */
export function createPublicServer(options: PublicServerOptions): Server {
  const { handler, keepAliveTimeoutMs, requestTimeoutMs, headersFor } = options;
  const server = createServer(
    {
      keepAliveTimeout: keepAliveTimeoutMs,
      requestTimeout: requestTimeoutMs,
      headersTimeout: Math.min(requestTimeoutMs, 10_000),
      connectionsCheckingInterval: 1_000, // the two time-outs above are only looked at this often
      maxHeaderSize: 16 * 1024,
    },
    handler,
  );
  // RFC 9110 section 10.1.1: an unknown expectation may be ignored; Node would answer 417 without a body.
  server.on("checkExpectation", handler);
  server.on("connect", (_request, socket) => answerRaw(socket, new ApiError("method_not_allowed"), headersFor));
  server.on("clientError", (fault: NodeJS.ErrnoException, socket) => {
    if (fault.code === "ECONNRESET" || !socket.writable) socket.destroy();
    else answerRaw(socket, parserError(fault), headersFor);
  });
  return server;
}

function parserError(cause: NodeJS.ErrnoException): ApiError {
  switch (cause.code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new ApiError("timeout", { status: 408, message: "The request did not arrive in time.", cause });
    case "HPE_HEADER_OVERFLOW":
      return new ApiError("payload_too_large", { status: 431, cause });
    default:
      return new ApiError("invalid_request", { message: "The request is not valid HTTP/1.1.", cause });
  }
}

/** Writes a whole response to a socket that has no request on it, and closes it. */
function answerRaw(socket: Duplex, error: ApiError, headersFor: PublicServerOptions["headersFor"]): void {
  const { remoteAddress } = socket as Duplex & { remoteAddress?: string };
  const headers = [
    "X-Request-Id",
    requestId(undefined),
    ...headersFor(remoteAddress ?? "unknown"),
    "Content-Type",
    jsonType,
    "Content-Length",
    String(Buffer.byteLength(error.body)),
    "Connection",
    "close",
  ];
  const lines = headers.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`));
  const reason = `HTTP/1.1 ${error.status} ${error.code}\r\n`;
  socket.end(`${reason}${lines.join("")}\r\n${error.body}`);
}
