/** The open connections of the public server: the latest response of each, and how each of them ends. */
import { type IncomingMessage, Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { isHeld } from "./request-context.ts";

/** How long a closing connection stays open for a client that is still sending, or for the rest of a head at a stop. */
export const lingerMs = 1_000;

/**
 * Requests on a connection that are open at once, and those of all connections that others follow. Pipelined requests
 * cost memory before any limit sees them, and Node takes quadratic time to forget them when their client leaves.
 */
const maxOpen = 1_000;
const maxEarlier = 20_000;

export class Connections {
  readonly #latest = new Map<Socket, ServerResponse | undefined>();
  /** By connection, the open responses that a later response follows (pipelining). */
  readonly #earlier = new Map<Socket, Set<ServerResponse>>();
  #earlierCount = 0;
  /** Those of which no more requests are taken: something invalid has arrived there, or too many requests are open. */
  readonly #unread = new WeakSet<Socket>();

  add(socket: Socket): void {
    this.#latest.set(socket, undefined);
    socket.on("close", () => this.#latest.delete(socket));
    socket.destroySoon = () => closeGracefully(socket); // Node calls it after a response that is the last
  }

  /**
   * Notes a request and its response.
   *
   * @returns false for a request that must not be processed: the connection ends before its answer (RFC 9112 section
   *   9.6)
   */
  take({ socket }: IncomingMessage, response: ServerResponse): boolean {
    if (socket.writableEnded || this.#unread.has(socket)) return false;
    const before = this.#latest.get(socket);
    if (before?.shouldKeepAlive === false) {
      this.#takeNoMore(socket);
      return false;
    }
    if (before?.closed === false && !this.#keepEarlier(socket, before)) return false;
    if (this.#latest.has(socket)) this.#latest.set(socket, response);
    return true;
  }

  /** Keeps a response that another one follows. @returns false when too many are open: the connection ends after it */
  #keepEarlier(socket: Socket, response: ServerResponse): boolean {
    const earlier = this.#earlier.get(socket) ?? new Set();
    if (earlier.size + 1 >= maxOpen || this.#earlierCount >= maxEarlier) {
      this.#takeNoMore(socket);
      this.endAfter(socket, response);
      return false;
    }
    this.#earlier.set(socket, earlier.add(response));
    this.#earlierCount += 1;
    response.once("close", () => {
      this.#earlierCount -= 1;
      earlier.delete(response);
      if (earlier.size === 0) this.#earlier.delete(socket);
    });
    return true;
  }

  /** Takes no more requests of a connection, and has none of them parsed. */
  #takeNoMore(socket: Socket): void {
    this.endReading(socket);
    stopParsing(socket);
  }

  /** Takes no more requests of a connection. @returns false the second time */
  endReading(socket: Socket): boolean {
    if (this.#unread.has(socket)) return false;
    this.#unread.add(socket);
    return true;
  }

  sockets(): Iterable<Socket> {
    return this.#latest.keys();
  }

  /** The latest response on a connection; it may be over. */
  latest(socket: Socket): ServerResponse | undefined {
    return this.#latest.get(socket);
  }

  /** Counts the responses that wait for others: for a client that reads slowly, or because they are held. */
  countWaitingForOthers(): number {
    let count = 0;
    for (const response of this.#open()) if (response.headersSent || isHeld(response)) count += 1;
    return count;
  }

  *#open(): Iterable<ServerResponse> {
    for (const response of this.#latest.values()) if (response?.closed === false) yield response;
    for (const responses of this.#earlier.values()) yield* responses;
  }

  /** Ends every connection after the response that is under way on it. */
  endAll(): void {
    for (const [socket, response] of this.#latest) if (response?.closed === false) this.endAfter(socket, response);
  }

  /** Ends the connections whose response can still say so. The client of another one may be sending a request. */
  endAnnounced(): void {
    for (const [socket, response] of this.#latest) {
      if (response?.closed === false && !response.headersSent) this.endAfter(socket, response);
    }
  }

  /**
   * Makes a response the last on its connection. If its head has already promised to keep the connection, a request may
   * follow it and is answered too.
   */
  endAfter(socket: Socket, response: ServerResponse): void {
    if (!response.headersSent) response.shouldKeepAlive = false; // its head will say so, and Node closes after it
    const close = () => this.#latest.get(socket) === response && closeGracefully(socket);
    if (response.closed) close();
    else response.once("close", close);
  }

  /**
   * Closes the connections of a server that wait for the begin of a request. Node by itself takes a response for over
   * once it is ended, and would cut off what its client has not taken yet.
   */
  closeIdle(server: Server): void {
    const unsent = [...this.#open()].filter((response) => response.writableEnded);
    for (const response of unsent) response.finished = false; // Node looks at this alone
    Server.prototype.closeIdleConnections.call(server);
    for (const response of unsent) response.finished = true;
  }

  /** Closes the connections on which no response is under way. */
  destroyIdle(): void {
    for (const [socket, response] of this.#latest) if (response?.closed !== false) socket.destroy();
  }
}

/**
 * Closes a connection whose client may still be sending. Closing it at once would take the answer away from such a
 * client before it has read it (RFC 9112 section 9.6). What still arrives is dropped.
 */
export function closeGracefully(socket: Socket): void {
  if (socket.writableEnded) return;
  socket.end();
  stopParsing(socket);
  const timer = setTimeout(() => socket.destroy(), lingerMs);
  socket.once("close", () => clearTimeout(timer));
}

/**
 * Drops what a client sends from now on. Node's parser would make a request and a response of it, and keep them until
 * the connection closes.
 */
function stopParsing(socket: Socket): void {
  socket.on("data", () => {}); // otherwise the parser reads from the kernel, and not from the stream
  socket.removeAllListeners("data");
  socket.resume();
}
