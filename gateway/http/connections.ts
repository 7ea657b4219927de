/** The open connections of the public server, and how they end at a stop. */
import type { Socket } from "node:net";
import { type BodyFault, Connection, type WaitingRoom } from "./connection.ts";
import { waitsForOthers } from "./request-context.ts";

/** Bytes that clients may send ahead of an answer or of the end of a head, on all connections together. */
const maxWaitingBytes = 32 * 1024 * 1024;

export class Connections {
  readonly #room: WaitingRoom = { bytesLeft: maxWaitingBytes };
  readonly #all = new Map<Socket, Connection>();

  /** @param onInvalid has to end the connection */
  add(socket: Socket, onInvalid: (fault: BodyFault) => void): void {
    this.#all.set(socket, new Connection(socket, this.#room, onInvalid));
    socket.on("close", () => this.#all.delete(socket));
  }

  /** The connection of a socket that has not closed. */
  of(socket: Socket): Connection | undefined {
    return this.#all.get(socket);
  }

  sockets(): Iterable<Socket> {
    return this.#all.keys();
  }

  /** Counts the responses that wait for others: for a client that reads slowly, or because they are held. */
  countWaitingForOthers(): number {
    let count = 0;
    for (const { open } of this.#all.values()) if (open && (open.headersSent || waitsForOthers(open))) count += 1;
    return count;
  }

  /** Ends every connection after the response that is under way on it. */
  endAll(): void {
    for (const connection of this.#all.values()) if (connection.open) connection.endAfterOpen();
  }

  /**
   * Ends the connections whose response has no head yet, so that it can say so. The client of another may be sending
   * already.
   */
  endAnnounced(): void {
    for (const connection of this.#all.values()) if (connection.open?.headersSent === false) connection.endAfterOpen();
  }

  /** Closes the connections without a request; `withParts`: also those with a part of one. */
  destroyIdle({ withParts }: { readonly withParts: boolean }): void {
    for (const { socket, open, isIdle } of this.#all.values()) {
      if (isIdle || (withParts && open === undefined)) socket.destroy();
    }
  }
}
