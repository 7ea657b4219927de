import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

/** A connection between two parts of a system, in the hands of a test. */
export interface Link {
  readonly port: number;
  /** How long each piece is on its way; 0 at first. */
  delayMs: number;
  /** Breaks all connections and refuses new ones. */
  cut(): void;
  /** Lets nothing through and breaks no connection, as a firewall does that drops packets. */
  silence(): void;
  /** Lets everything through again, over new connections. */
  mend(): void;
}

/** Starts a proxy in front of a port of this machine. It is closed with the stack. */
export async function startLink(stack: AsyncDisposableStack, targetPort: number): Promise<Link> {
  const sockets = new Set<Socket>();
  let isCut = false;
  const server = createServer((caller) => {
    const target = connect(targetPort, "127.0.0.1");
    for (const socket of [caller, target]) {
      sockets.add(socket.setNoDelay().on("error", () => {}));
      socket.on("close", () => sockets.delete(socket));
    }
    if (isCut) caller.destroy();
    carry(caller, target);
    carry(target, caller);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");

  /** Writes each piece when it is due, in order even while the delay gets shorter. */
  const carry = (from: Socket, to: Socket) => {
    let written = Promise.resolve();
    from.on("data", (piece) => {
      const dueMs = Date.now() + link.delayMs;
      written = written.then(async () => {
        const leftMs = dueMs - Date.now();
        if (leftMs > 0) await delay(leftMs, undefined, { ref: false });
        to.write(piece);
      });
    });
    // What was sent before a close is still on its way.
    from.on("close", () => void written.then(() => to.destroySoon()));
  };
  const breakAll = () => {
    for (const socket of sockets) socket.destroy();
  };
  stack.defer(() => {
    server.close();
    breakAll();
  });
  const link: Link = {
    port: (server.address() as AddressInfo).port,
    delayMs: 0,
    cut: () => {
      isCut = true;
      breakAll();
    },
    silence: () => {
      link.delayMs = 3_600_000;
    },
    mend: () => {
      isCut = false;
      link.delayMs = 0;
      breakAll();
    },
  };
  return link;
}
