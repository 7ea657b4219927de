import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** Responses that wait behind another one on their connection. */
const queued = new WeakMap<Socket, Set<ServerResponse>>();

/**
 * Sees to it that a response closes with its connection. Some versions of Node (22 among them) forget one that waits
 * behind another there (HTTP pipelining): without its `close`, nothing that is held for it would ever be given back.
 */
export function closeWithConnection({ socket }: IncomingMessage, response: ServerResponse): void {
  if (response.socket !== null) return; // the first on its connection: Node closes it
  if (socket.closed) {
    process.nextTick(close, response); // an app around this one has taken its time
    return;
  }
  const waiting = queued.get(socket) ?? watch(socket);
  if (waiting.has(response)) return;
  waiting.add(response);
  response.once("close", () => waiting.delete(response));
}

function watch(socket: Socket): Set<ServerResponse> {
  const waiting = new Set<ServerResponse>();
  queued.set(socket, waiting);
  // Behind what Node does itself, in the versions that do.
  socket.once("close", () => process.nextTick(() => waiting.forEach(close)));
  return waiting;
}

function close(response: ServerResponse): void {
  if (response.closed) return;
  response.destroy();
  response.emit("close");
}
