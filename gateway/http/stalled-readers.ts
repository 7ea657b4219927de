/** Cuts off clients that take nothing of what is sent to them, whatever that is. */
import type { Server } from "node:http";
import type { Socket } from "node:net";

/** How often in the time-out each connection is looked at. */
const looks = 10;

/** Node's handle of a connection: the one place that tells how much of a pending write the kernel has taken. */
interface Handle {
  readonly bytesWritten: number;
  /** Bytes of these that the kernel has not taken yet. */
  readonly writeQueueSize: number;
}

/**
 * Destroys connections whose client reads nothing. Ten times in `timeoutMs` it looks at all connections together, so a
 * request costs nothing; a connection with pending bytes of which the kernel took none in ten looks is destroyed. Looks
 * are counted, not time, so that a frozen process cuts off no reader when it goes on. The looks end with the server.
 *
 * @param sockets gives the open connections
 */
export function cutStalledReaders(server: Server, sockets: () => Iterable<Socket>, timeoutMs: number): void {
  /** Connections with pending bytes: the bytes taken so far, and for how many looks that number has not moved. */
  let stalls = new Map<Socket, { readonly taken: number; readonly count: number }>();
  const look = () => {
    const before = stalls;
    stalls = new Map();
    for (const socket of sockets()) {
      if (socket.writableLength === 0) continue; // by far the most
      const { _handle: handle } = socket as Socket & { _handle: Handle | null };
      if (!handle || handle.writeQueueSize === 0) continue;
      const taken = handle.bytesWritten - handle.writeQueueSize;
      const stall = before.get(socket);
      const count = stall?.taken === taken ? stall.count + 1 : 0;
      if (count < looks) stalls.set(socket, { taken, count });
      else socket.destroy();
    }
  };
  const timer = setInterval(look, timeoutMs / looks).unref();
  server.once("close", () => clearInterval(timer));
}
