/** A proxy in front of a source and its replica, which can send the reads to the replica. */
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export interface ReadSplitter {
  readonly port: number;
  /** Whether each SELECT outside of a transaction goes to the replica. Everything else goes to the source. */
  isSplitting: boolean;
}

/**
 * Starts the proxy. Each of its connections logs in to both servers with the same packets, so it takes only accounts
 * without a password: otherwise the answer to the login depends on the server.
 */
export async function startReadSplitter(
  stack: AsyncDisposableStack,
  ports: { readonly source: number; readonly replica: number },
): Promise<ReadSplitter> {
  const sockets = new Set<Socket>();
  const proxy = createServer((client) => {
    const [source, replica] = [connect(ports.source, "127.0.0.1"), connect(ports.replica, "127.0.0.1")];
    const ends = [client, source, replica];
    for (const socket of ends) {
      sockets.add(socket.on("error", () => {}));
      socket.on("close", () => {
        for (const end of ends) end.destroy();
        sockets.delete(socket);
      });
    }
    let isInTransaction = false;
    onPackets(client, (packet) => {
      // Packets of a login have a number above 0; a command begins again at 0.
      if (packet[3] !== 0) {
        source.write(packet);
        replica.write(packet);
        return;
      }
      const text = packet.toString("latin1", 5);
      if (/^\W*begin\b/i.test(text)) isInTransaction = true;
      const isRead = /^\W*select\b/i.test(text) && !isInTransaction;
      if (/\b(commit|rollback)\W*$/i.test(text)) isInTransaction = false;
      (splitter.isSplitting && isRead ? replica : source).write(packet);
    });
    source.pipe(client);
    let isLoggedIn = false;
    onPackets(replica, (packet) => {
      if (isLoggedIn) client.write(packet);
      else isLoggedIn = packet[4] === 0; // OK; the source's login is the one that the client sees
    });
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  stack.defer(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });
  const splitter: ReadSplitter = { port: (proxy.address() as AddressInfo).port, isSplitting: false };
  return splitter;
}

/** Passes on each packet of MySQL's protocol whole: three bytes of length, its number, its content. */
function onPackets(socket: Socket, take: (packet: Buffer) => void): void {
  let rest: Buffer = Buffer.alloc(0);
  socket.on("data", (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 4) {
      const end = 4 + rest.readUIntLE(0, 3);
      if (rest.length < end) return;
      take(rest.subarray(0, end));
      rest = rest.subarray(end);
    }
  });
}
