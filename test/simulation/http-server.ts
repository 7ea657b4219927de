/** The gateways' side of HTTP: what Node's HTTP server has in place of sockets. */
import type { Server } from "node:http";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import type { End, Network } from "./virtual-network.ts";
import type { Host } from "./virtual-time.ts";

/** Bytes, or the end of them. */
export type Bytes = Buffer | null;

/** The gateway's side of a connection: what Node's server and the product's use of a socket. */
class ServerSocket extends Duplex {
  readonly remoteAddress: string;
  readonly #end: End<Bytes>;

  constructor(end: End<Bytes>, remoteAddress: string) {
    super({ allowHalfOpen: true });
    this.remoteAddress = remoteAddress;
    this.#end = end;
    end.onMessage = (bytes) => {
      if (!this.destroyed) this.push(bytes);
    };
    end.onClose = () => this.destroy();
  }

  override _read(): void {}

  override _write(bytes: Buffer, _encoding: string, done: (error?: Error) => void): void {
    this.#end.send(Buffer.from(bytes));
    done(this.#end.isClosed ? Object.assign(new Error("write EPIPE"), { code: "EPIPE" }) : undefined);
  }

  override _final(done: () => void): void {
    this.#end.send(null);
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#end.close();
    done(error);
  }

  setTimeout(): this {
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }
}

/** What `net.Server` counts of its connections, so that `close` waits for them. */
interface Counting {
  _connections: number;
  _emitCloseIfDrained(): void;
}

/** Has a server take the connections to an address. */
export function serveHttp(network: Network, address: string, host: Host, server: Server): void {
  const counting = server as unknown as Counting;
  network.listen<Bytes>(address, host, (end) => {
    const socket = new ServerSocket(end, end.peer.host.name) as unknown as Socket;
    counting._connections += 1;
    socket.on("error", () => {});
    socket.once("close", () => {
      counting._connections -= 1;
      counting._emitCloseIfDrained();
    });
    server.emit("connection", socket);
  });
}
