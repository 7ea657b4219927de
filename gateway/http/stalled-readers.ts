/** Cuts off clients that take nothing of what is sent to them, whatever that is. */
import type { Server } from "node:http";
import type { Socket } from "node:net";

/** How often in the time-out each connection is looked at. */
const looks = 10;

/** What Node keeps for a connection. Nothing else tells how much of a write that is under way the kernel has taken. */
interface Handle {
  readonly bytesWritten: number;
  /** How many of these the kernel has not taken. */
  readonly writeQueueSize: number;
}

/**
 * Destroys each connection from which the kernel takes nothing for this time although there is something, until the
 * server is closed. It looks at all of them together, so requests cost nothing. It counts looks and asks no clock: after
 * a time in which the whole process stood still, no connection has had a chance to go on.
 *
 * @param sockets gives the open connections
 */
export function cutStalledReaders(server: Server, sockets: () => Iterable<Socket>, timeoutMs: number): void {
  /** Those that had something left at the latest look: what they had taken, and for how many looks that has been all. */
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
