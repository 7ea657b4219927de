import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Request, Response, Router } from "express";
import { peerAddress } from "./client-address.ts";
import type { FlatHeaders } from "./common-headers.ts";
import { ApiError } from "./errors.ts";
import type { Overload } from "./overload.ts";
import { closeWithConnection } from "./queued.ts";
import { requestId } from "./request-id.ts";
import { jsonType } from "./respond.ts";

export interface PublicServerOptions {
  /**
   * What answers. An app around it would give each request and response another prototype, which costs V8 a tenth of a
   * small request. It calls `next` with a request that it cannot route: one whose target no URL parser can read.
   */
  readonly router: Router;
  /** Idle time after which a connection is closed; above that of the load balancer in front, which must close first. */
  readonly keepAliveTimeoutMs: number;
  /** How long a whole request, headers and body, may take to arrive. */
  readonly requestTimeoutMs: number;
  /** Connections at the most; more are closed at once. */
  readonly maxConnections: number;
  /** Tells which requests are refused because there is more to do than can be done. */
  readonly overload: Pick<Overload, "enter">;
  /** The limit headers for a caller who got no further than its address. */
  readonly headersFor: (address: string) => FlatHeaders;
  /** Told of every request that is refused here for what it is; that ends its connection. */
  readonly onMalformed: (error: ApiError, requestId: string) => void;
}

export interface PublicServer {
  readonly server: Server;
  /** From now on each response is the last on its connection: its client, or the balancer, opens the next one elsewhere. */
  endConnections(): void;
  /** Takes no more connections, closes those that bring no request, and resolves when the last response is out. */
  close(): Promise<void>;
}

/** How long a client that is still sending has: to notice that it was answered, or for the rest of a head at a stop. */
const lingerMs = 1_000;

/** One for all: it is sent when there is no time to lose. */
const overloaded = new ApiError("service_unavailable", { headers: { "Retry-After": "1" } });

// RFC 9112 section 3.2
const noHost = new ApiError("invalid_request", {
  message: "The request has no Host header.",
  headers: { Connection: "close" },
});

const noTarget = new ApiError("invalid_request", {
  message: "The target of the request is not a valid URL.",
  headers: { Connection: "close" },
});

/**
 * The public HTTP server. What never gets to a route (a malformed or slow request) also leaves as the Error body, with
 * the limit headers of the address.
 */
export function createPublicServer(options: PublicServerOptions): PublicServer {
  const { router, keepAliveTimeoutMs, requestTimeoutMs, maxConnections, overload, headersFor, onMalformed } = options;
  /** The connections, each with its last response. */
  const responses = new Map<Duplex, ServerResponse | undefined>();
  /** Those on which something came that nobody reads. */
  const unread = new WeakSet<Duplex>();
  let isEnding = false;

  const refuse = (request: IncomingMessage, response: ServerResponse, error: ApiError) => {
    const id = requestId(request.headers["x-request-id"]);
    if (error !== overloaded) onMalformed(error, id); // a line for each would cost what the refusal saves
    response.writeHead(error.status, headOf(error, id, headersFor(peerAddress(request.socket))));
    response.end(request.method === "HEAD" ? undefined : error.body);
  };
  const countSending = () => {
    let count = 0;
    for (const response of responses.values()) if (response?.headersSent && !response.closed) count += 1;
    return count;
  };
  const onRequest = (request: IncomingMessage, response: ServerResponse) => {
    if (responses.has(request.socket)) responses.set(request.socket, response);
    if (isEnding) response.shouldKeepAlive = false;
    closeWithConnection(request, response);
    if (!overload.enter(response, countSending)) refuse(request, response, overloaded);
    else if (request.headers.host === undefined && request.httpVersion !== "1.0") refuse(request, response, noHost);
    else router(request as Request, response as Response, () => refuse(request, response, noTarget));
  };
  const server = createServer(
    {
      keepAliveTimeout: keepAliveTimeoutMs,
      requestTimeout: requestTimeoutMs,
      headersTimeout: Math.min(requestTimeoutMs, 10_000),
      connectionsCheckingInterval: 1_000, // the two time-outs above are only looked at this often
      maxHeaderSize: 16 * 1024,
      requireHostHeader: false, // it would answer without a body
      optimizeEmptyRequests: true, // who asks for the list has no body: a stream for it costs 8 % of a small request
    },
    onRequest,
  );
  server.maxConnections = maxConnections;
  server.on("connection", (socket) => {
    responses.set(socket, undefined);
    socket.on("close", () => responses.delete(socket));
    // How Node closes a connection after its last response.
    socket.destroySoon = () => {
      if (responses.get(socket)?.req.complete === false || unread.has(socket)) endAndLinger(socket);
      else Socket.prototype.destroySoon.call(socket);
    };
  });
  // RFC 9110 section 10.1.1: an unknown expectation may be ignored; Node would answer 417 without a body.
  server.on("checkExpectation", onRequest);
  /** Ends a connection behind a response that is under way. */
  const closeBehind = (socket: Duplex, response: ServerResponse) => {
    response.shouldKeepAlive = false;
    // Its head may have promised to keep the connection.
    response.on("close", () => responses.get(socket) === response && (socket as Socket).destroySoon());
  };
  /** Answers what is no request that a handler could answer. */
  const answer = (socket: Duplex, error: ApiError) => {
    const last = responses.get(socket);
    // It comes behind a whole request whose answer is still to come: another one in its place would be taken for that.
    const isBehind = last?.req.complete === true && !last.closed && !isInBody(last);
    if (isBehind) unread.add(socket);
    if (isBehind && !last.shouldKeepAlive) return; // the connection ends there as it is
    const id = requestId(undefined);
    onMalformed(error, id);
    if (isBehind) closeBehind(socket, last);
    else if (isInBody(last)) socket.destroy();
    else answerRaw(socket, error, headOf(error, id, headersFor(peerAddress(socket as Socket))));
  };
  server.on("connect", (_request, socket) => {
    socket.on("error", () => {}); // Node has taken its own listener away, and without one an error ends the process
    answer(socket, new ApiError("method_not_allowed", { headers: { Allow: "GET, HEAD, PATCH" } }));
  });
  server.on("clientError", (fault: NodeJS.ErrnoException, socket) => {
    if (socket.writableEnded) return; // it has its answer, and goes on sending
    if (fault.code === "ECONNRESET" || !socket.writable) socket.destroy();
    else answer(socket, parserError(fault));
  });
  const endConnections = () => {
    if (isEnding) return;
    isEnding = true;
    for (const [socket, response] of responses) {
      if (response && !response.closed) closeBehind(socket, response);
    }
  };
  return {
    server,
    endConnections,
    close: async () => {
      endConnections();
      await nextTurn(); // a connection or a request that the kernel has already is taken first
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      // Node looks at no time-out of a head any more. One that is under way may still arrive, one that is not is not.
      const timer = setTimeout(() => {
        for (const [socket, response] of responses) if (response?.closed !== false) socket.destroy();
      }, lingerMs);
      await closed;
      clearTimeout(timer);
    },
  };
}

/** Whether a body is on its way on the connection of this response, its own or that of one before it. */
function isInBody(response: ServerResponse | undefined): boolean {
  if (response === undefined || response.closed) return false;
  return response.socket === null || (response.headersSent && !response.writableEnded);
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
function answerRaw(socket: Duplex, error: ApiError, itsHead: readonly string[]): void {
  const head = [...itsHead, "Date", new Date().toUTCString(), "Connection", "close"];
  const lines = head.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`));
  socket.write(`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n${lines.join("")}\r\n${error.body}`);
  endAndLinger(socket);
}

/** Closes while the client may still be sending: closing at once would take the answer away from it (RFC 9112 section 9.6). */
function endAndLinger(socket: Duplex): void {
  socket.end();
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), lingerMs);
  socket.once("close", () => clearTimeout(timer));
}

function headOf(error: ApiError, id: string, limits: FlatHeaders): string[] {
  const length = String(Buffer.byteLength(error.body));
  const own = Object.entries(error.headers).flat();
  return ["X-Request-Id", id, ...limits, "Content-Type", jsonType, "Content-Length", length, ...own];
}
