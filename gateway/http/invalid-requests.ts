/** Answers what is no valid request. There is no response object for it: the answer is written to its connection. */
import { type Server, type ServerResponse, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { closeGracefully } from "./connections.ts";
import { ApiError } from "./errors.ts";
import type { HeaderList } from "./request-context.ts";
import { jsonType } from "./respond.ts";

/** Writes a whole response and closes the connection. */
export function answerRaw(socket: Socket, error: ApiError, headers: HeaderList): void {
  const length = String(Buffer.byteLength(error.body));
  const own = ["Content-Type", jsonType, "Content-Length", length, "Connection", "close"];
  const head = [...headers, ...own, "Date", new Date().toUTCString()];
  const lines = head.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`));
  socket.write(`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n${lines.join("")}\r\n${error.body}`);
  closeGracefully(socket);
}

/**
 * When an invalid request may be answered: each request on a connection gets one answer, in the order of arrival.
 *
 * @param latest the latest response on its connection
 * @returns `now`; `close` or `socket` for the event of the latest response after which to ask again; `never` where that
 *   response has begun and what is invalid belongs to the body of its request
 */
export function turnOfInvalid(latest: ServerResponse | undefined): "now" | "close" | "socket" | "never" {
  if (latest === undefined) return "now";
  if (latest.req.complete) return latest.closed ? "now" : "close"; // what is invalid comes after that request
  if (latest.headersSent) return "never";
  return latest.socket === null ? "socket" : "now"; // it gets its socket when the responses before it are out
}

/** The public error for what Node's parser found wrong. */
export function parserError(cause: NodeJS.ErrnoException): ApiError {
  switch (cause.code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new ApiError("timeout", { status: 408, message: "The request did not arrive in time.", cause });
    case "HPE_HEADER_OVERFLOW":
      return new ApiError("payload_too_large", { status: 431, cause });
    default:
      return new ApiError("invalid_request", { message: "The request is not valid HTTP/1.1.", cause });
  }
}

/** What Node listens for on behalf of the responses of a connection. */
const listenedFor = ["close", "drain", "timeout"] as const;

/**
 * Calls back for a CONNECT. Node removes all listeners from its connection. Responses to earlier requests may be under
 * way there, so this restores their listeners. Whatever follows the CONNECT is dropped.
 */
export function onTunnel(server: Server, callback: (socket: Socket) => void): void {
  const listeners = new WeakMap<Duplex, readonly (readonly [string, readonly unknown[]])[]>();
  server.on("connection", (socket) => {
    listeners.set(
      socket,
      listenedFor.map((event) => [event, socket.listeners(event)]),
    );
  });
  server.on("connect", ({ socket }) => {
    socket.on("error", () => {}); // without a listener, an error would end the process
    for (const [event, all] of listeners.get(socket) ?? []) {
      const missing = (all as (() => void)[]).filter((listener) => !socket.listeners(event).includes(listener));
      for (const listener of missing) socket.on(event, listener);
    }
    socket.resume();
    callback(socket);
  });
}
