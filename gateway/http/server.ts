/** Serves HTTP: passes requests to the router, refuses what never gets that far, and stops without a loss. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Request, Response, Router } from "express";
import { Shares } from "../../runtime/shares.ts";
import { ApiError } from "./api-error.ts";
import { addressBlock, peerAddress } from "./client-address.ts";
import { type BodyFault, Connection, lingerMs } from "./connection.ts";
import { type InvalidRequestOptions, parserError, refusalHeaders, refuseInvalid } from "./invalid-requests.ts";
import { writeJson } from "./json.ts";
import type { Overload } from "./overload.ts";
import { acceptRequestId, invalidTarget, maxHeaderLines, pathOf, requestFault } from "./request.ts";
import { waitsForOthers } from "./request-context.ts";
import { cutStalledReaders } from "./stalled-readers.ts";

export interface PublicServerOptions extends InvalidRequestOptions {
  /**
   * Answers the requests: a bare router and no Express app, because an app costs a tenth of a small request
   * (docs/performance.md). It calls `next` for a request whose target is no valid URL.
   */
  readonly router: Router;
  /** How long a whole request, head and body, may take to arrive. */
  readonly requestTimeoutMs: number;
  /** Time after which a client that takes nothing of what is sent to it is cut off. */
  readonly stallTimeoutMs: number;
  /** Maximum connections; further ones are closed at once. An address gets at most half of what others have left. */
  readonly maxConnections: number;
  /** Whether an address is that of a proxy, whose connections are those of many clients. */
  readonly isProxy: (address: string) => boolean;
  /** Decides which requests are refused because there is more to do than can be done. */
  readonly overload: Pick<Overload, "enter">;
}

export interface PublicServer {
  readonly server: Server;
  /**
   * Makes each response from now on the last on its connection: the client, or the balancer, opens the next one
   * elsewhere.
   */
  endConnections(): void;
  /** Accepts no more connections, closes those without a request, and resolves when the last response is out. */
  close(): Promise<void>;
}

/** A client that takes nothing for this long is cut off at a stop. This time is below `DRAIN_SECONDS` by default. */
const stopStallMs = 5_000;

/** One object for all refusals: there is no time to lose. */
const overloaded = new ApiError("service_unavailable", { headers: { "Retry-After": "1" } });

const bodyFaults: Readonly<Record<BodyFault, ApiError>> = {
  "cut short": new ApiError("invalid_request", { message: "The body of the request is cut short." }),
  "too many pieces": new ApiError("payload_too_large", { message: "The body has too many chunks or line breaks." }),
};
const noTunnel = new ApiError("method_not_allowed", { headers: { Allow: "GET, HEAD, PATCH, POST" } });

/**
 * Creates the server. What never gets to a route, such as a malformed or slow request, is answered with the Error body
 * too, with an `X-Request-Id` and the limit headers of the peer's address.
 */
export function createPublicServer(options: PublicServerOptions): PublicServer {
  const { router, overload } = options;
  const connections = new Connections();
  const countForOthers = () => connections.countWaitingForOthers();
  let isEnding = false;

  const onRequest = (request: IncomingMessage, response: ServerResponse) => {
    const connection = connections.of(request.socket)!;
    connection.take(response);
    if (isEnding) connection.endAfterOpen();
    const refuse = (error: ApiError) => {
      if (error !== overloaded) connection.endAfterOpen();
      refuseRequest(request, response, error, options);
    };
    const mayEnter = overload.enter(response, countForOthers); // each is counted, also one that is refused
    const fault = requestFault(request) ?? (mayEnter ? undefined : overloaded);
    if (fault) refuse(fault);
    else router(request as Request, response as Response, () => refuse(invalidTarget));
  };
  const server = createServer(
    {
      keepAliveTimeout: options.keepAliveTimeoutMs,
      requestTimeout: options.requestTimeoutMs,
      headersTimeout: Math.min(options.requestTimeoutMs, 10_000),
      connectionsCheckingInterval: 1_000, // Node checks the two time-outs above only this often
      maxHeaderSize: 16 * 1024,
      // Set here so that no flag of the process turns it on: a lenient parser ends a request without an empty line.
      insecureHTTPParser: false,
      requireHostHeader: false, // Node would answer without a body
      optimizeEmptyRequests: true, // a request without a body needs no stream for one, which is costly
    },
    onRequest,
  );
  server.maxHeadersCount = maxHeaderLines + 1; // more are an error of Node's parser, which then reads no further
  server.maxConnections = options.maxConnections;
  const letIn = shareConnections(options, (socket, owner) =>
    connections.add(socket, owner, (fault) => onInvalid(socket, bodyFaults[fault])),
  );
  server.on("connection", letIn);
  cutStalledReaders(server, () => connections.sockets(), options.stallTimeoutMs);
  server.closeIdleConnections = () => connections.destroyIdle({ withParts: false }); // `server.close` calls it
  // RFC 9110 section 10.1.1: an unknown expectation may be ignored. Node would answer 417 without a body.
  server.on("checkExpectation", onRequest);
  const onInvalid = (socket: Socket, error: ApiError) => refuseInvalid(socket, connections.of(socket), error, options);
  server.on("clientError", (cause, socket) => onInvalid(socket as Socket, parserError(cause)));
  server.on("connect", ({ socket }) => {
    socket.on("error", () => {}); // Node has removed its listeners, and an error would end the process
    onInvalid(socket, noTunnel);
  });
  return {
    server,
    endConnections: () => {
      isEnding = true;
      connections.endAnnounced();
    },
    close: async () => {
      isEnding = true;
      cutStalledReaders(server, () => connections.sockets(), stopStallMs);
      await close(server, connections);
    },
  };
}

/**
 * Lets a connection in unless its client has its share of all connections already.
 *
 * @param letIn gets the owner of the connection, too: its address block; for a proxy, which serves many clients, the
 *   connection itself
 */
function shareConnections(
  { maxConnections, isProxy }: PublicServerOptions,
  letIn: (socket: Socket, owner: string) => void,
) {
  const shares = new Shares(maxConnections);
  return (socket: Socket) => {
    const address = peerAddress(socket);
    if (isProxy(address)) return letIn(socket, `${address} ${socket.remotePort}`);
    const owner = addressBlock(address);
    if (!shares.take(owner)) return void socket.destroy();
    socket.on("close", () => shares.release(owner));
    letIn(socket, owner);
  };
}

/** Refuses a request that does not get to its route. */
function refuseRequest(
  request: IncomingMessage,
  response: ServerResponse,
  error: ApiError,
  { headersOutsideRouter, onMalformed }: PublicServerOptions,
): void {
  const id = acceptRequestId(request.headers["x-request-id"]);
  if (error !== overloaded) onMalformed(error, id); // a log line would cost what the refusal of an overload saves
  const common = headersOutsideRouter(peerAddress(request.socket), request);
  const headers = refusalHeaders(error, id, common, pathOf(request));
  writeJson(request, response, error.status, error.body, headers);
}

async function close(server: Server, connections: Connections): Promise<void> {
  connections.endAll();
  await nextTurn(); // lets Node take a connection or a request that the kernel already has
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // Node checks no time-outs after `close`. So a connection without a response gets only this long for a request.
  const timer = setTimeout(() => connections.destroyIdle({ withParts: true }), lingerMs);
  await closed;
  clearTimeout(timer);
}

/** Bytes that clients may send ahead of an answer or of the end of a head, on all connections together. */
const maxWaitingBytes = 32 * 1024 * 1024;

/** The open connections, and how they end at a stop. */
class Connections {
  readonly #waitingBytes = new Shares(maxWaitingBytes);
  readonly #all = new Map<Socket, Connection>();

  /** @param onInvalid has to end the connection */
  add(socket: Socket, owner: string, onInvalid: (fault: BodyFault) => void): void {
    this.#all.set(socket, new Connection(socket, this.#waitingBytes, owner, onInvalid));
    socket.on("close", () => this.#all.delete(socket));
  }

  /** The connection of a socket that has not closed. */
  of(socket: Socket): Connection | undefined {
    return this.#all.get(socket);
  }

  sockets(): Iterable<Socket> {
    return this.#all.keys();
  }

  /** Counts the responses that wait for others: those that have begun, and those of `waitsForOthers`. */
  countWaitingForOthers(): number {
    let count = 0;
    for (const { openResponse: open } of this.#all.values()) {
      if (open && (open.headersSent || waitsForOthers(open))) count += 1;
    }
    return count;
  }

  /** Ends every connection after the response that is under way on it. */
  endAll(): void {
    for (const connection of this.#all.values()) if (connection.openResponse) connection.endAfterOpen();
  }

  /**
   * Ends the connections whose response can still carry `Connection: close`. Others stay: their client may already be
   * sending.
   */
  endAnnounced(): void {
    for (const connection of this.#all.values())
      if (connection.openResponse?.headersSent === false) connection.endAfterOpen();
  }

  /** Closes the connections without a request; `withParts`: also those with a part of one. */
  destroyIdle({ withParts }: { readonly withParts: boolean }): void {
    for (const { socket, openResponse, isIdle } of this.#all.values()) {
      if (isIdle || (withParts && openResponse === undefined)) socket.destroy();
    }
  }
}
