/**
 * HTTP between callers and gateways: the product's server reads the bytes, and a small client writes and reads them.
 */
import type { Server } from "node:http";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { gunzipSync } from "node:zlib";
import type { End, Network } from "./virtual-network.ts";
import { at, type Host, nowMs } from "./virtual-time.ts";

/** Bytes, or the end of them. */
type Bytes = Buffer | null;

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

export interface HttpRequest {
  readonly method: "GET" | "HEAD" | "PATCH" | "POST";
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  /** How long after its head the body is sent. */
  readonly bodyDelayMs?: number | undefined;
  /** Whether the client ends its side after the request, and still waits for its answer. */
  readonly halfCloses?: boolean | undefined;
  /** When the client leaves without its answer. */
  readonly leavesAfterMs?: number | undefined;
}

export interface HttpAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** @returns "broken" when the connection ended before the answer, "refused" when there was none, "left" as asked for */
export type HttpOutcome = HttpAnswer | "broken" | "refused" | "left";

/**
 * Sends a request over a connection of its own. Never rejects; without an answer it waits for as long as that takes.
 */
export function sendHttp(network: Network, from: Host, address: string, request: HttpRequest): Promise<HttpOutcome> {
  const { method, path, headers, body = "", bodyDelayMs = 0, halfCloses, leavesAfterMs } = request;
  return new Promise((resolve) => {
    let isLeaving = false;
    let opened: End<Bytes> | undefined;
    if (leavesAfterMs !== undefined) {
      at(from, nowMs() + leavesAfterMs, () => {
        isLeaving = true;
        resolve("left");
        if (!opened) return;
        // The server hears of the end at once, and that nobody is there when it sends something.
        opened.send(null);
        opened.onMessage = () => opened?.close();
      });
    }
    network.connect<Bytes>(
      from,
      address,
      (end) => {
        opened = end;
        if (isLeaving) return end.close();
        const length = Buffer.byteLength(body);
        const lines = Object.entries({
          host: "api.example",
          ...headers,
          ...(length > 0 || method !== "GET" ? { "content-length": String(length) } : {}),
        });
        const head = `${method} ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`;
        if (bodyDelayMs === 0) end.send(Buffer.from(head + body));
        else {
          end.send(Buffer.from(head));
          at(from, nowMs() + bodyDelayMs, () => end.send(Buffer.from(body)));
        }
        if (halfCloses) at(from, nowMs() + bodyDelayMs, () => end.send(null));
        let received: Buffer = Buffer.alloc(0);
        end.onMessage = (bytes) => {
          if (bytes === null) return;
          received = Buffer.concat([received, bytes]);
          const answer = parse(received, method === "HEAD");
          if (!answer) return;
          end.close();
          resolve(answer);
        };
        end.onClose = () => resolve("broken");
      },
      () => resolve("refused"),
    );
  });
}

/** @returns undefined for an answer that is not here as a whole */
function parse(bytes: Buffer, isHead: boolean): HttpAnswer | undefined {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd === -1) return undefined;
  const [first = "", ...lines] = bytes.toString("latin1", 0, headEnd).split("\r\n");
  const status = Number(first.split(" ")[1]);
  const rest = bytes.subarray(headEnd + 4);
  if (status < 200) return parse(rest, isHead);
  const headers = Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  const length = isHead || status === 304 || status === 204 ? 0 : Number(headers["content-length"] ?? 0);
  if (rest.length < length) return undefined;
  const content = rest.subarray(0, length);
  const body = headers["content-encoding"] === "gzip" && length > 0 ? gunzipSync(content) : content;
  return { status, headers, body: body.toString() };
}
