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
    process.nextTick(closeAll, new Set([response])); // an app around this one has taken its time
    return;
  }
  let waiting = queued.get(socket);
  if (!waiting) {
    const all = new Set<ServerResponse>();
    waiting = all;
    queued.set(socket, all);
    // Behind what Node does itself, in the versions that do.
    socket.once("close", () => process.nextTick(closeAll, all));
  }
  if (waiting.has(response)) return;
  waiting.add(response);
  response.once("close", () => waiting.delete(response));
}

function closeAll(responses: Set<ServerResponse>): void {
  for (const response of responses) {
    if (response.closed) continue;
    response.destroy();
    response.emit("close");
  }
}
