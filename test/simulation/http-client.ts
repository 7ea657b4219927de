/** The callers' side of HTTP: a small client that writes and reads the bytes. */
import { gunzipSync } from "node:zlib";
import { meet } from "./events.ts";
import type { Bytes } from "./http-server.ts";
import type { Random } from "./random.ts";
import type { End, Network } from "./virtual-network.ts";
import { at, type Host, nowMs } from "./virtual-time.ts";

export interface HttpRequest {
  readonly method: "GET" | "HEAD" | "PATCH" | "POST";
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  /** Whether the body comes in chunks; by default some do. */
  readonly isChunked?: boolean | undefined;
  /** The bytes to send in place of all that, for what is no HTTP. */
  readonly raw?: string | undefined;
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

/** How often a connection is kept for the next request to its gateway. */
const keepShare = 0.5;

/** How often a request comes in pieces, and how often its body comes in chunks. */
const slowShare = 0.05;
const chunkedShare = 0.1;

/** The client of one caller. */
export class HttpClient {
  readonly #network: Network;
  readonly #host: Host;
  readonly #random: Random;
  /** Connections without a request, by the address of their gateway. */
  readonly #idle = new Map<string, End<Bytes>>();

  constructor({ network, random }: { readonly network: Network; readonly random: Random }, host: Host) {
    this.#network = network;
    this.#host = host;
    this.#random = random;
  }

  /** Sends a request. Never rejects; without an answer it waits for as long as that takes. */
  send(address: string, request: HttpRequest): Promise<HttpOutcome> {
    const host = this.#host;
    return new Promise((resolve) => {
      let opened: End<Bytes> | undefined;
      let isLeaving = false;
      const leave = () => {
        isLeaving = true;
        resolve("left");
        if (!opened) return;
        // The server learns of the end at once. When it sends something, it learns that nobody is there.
        opened.send(null);
        opened.onMessage = () => opened?.close();
      };
      const { leavesAfterMs } = request;
      const stay = leavesAfterMs === undefined ? () => {} : at(host, nowMs() + leavesAfterMs, leave);
      const use = (end: End<Bytes>) => {
        opened = end;
        if (isLeaving) return end.close();
        const sentMs = this.#write(end, request);
        let received: Buffer = Buffer.alloc(0);
        end.onMessage = (bytes) => {
          if (bytes === null) return;
          received = Buffer.concat([received, bytes]);
          const answer = parse(received, request.method === "HEAD");
          if (!answer) return;
          stay();
          const isLast = answer.headers.connection === "close" || request.halfCloses || nowMs() < sentMs;
          if (isLast || !this.#random.chance(keepShare)) end.close();
          else this.#keep(address, end);
          resolve(answer);
        };
        end.onClose = () => resolve("broken");
      };
      const kept = this.keeps(address) ? this.#idle.get(address) : undefined;
      this.#idle.delete(address);
      if (kept) {
        meet("a further request on a connection");
        use(kept);
      } else this.#network.connect<Bytes>(host, address, use, () => resolve("refused"));
    });
  }

  /** Whether a connection to a gateway is kept. */
  keeps(address: string): boolean {
    const kept = this.#idle.get(address);
    return kept !== undefined && !kept.isClosed && !kept.peer.isClosed;
  }

  #keep(address: string, end: End<Bytes>): void {
    this.#idle.get(address)?.close();
    this.#idle.set(address, end);
    end.onClose = () => {};
    end.onMessage = (bytes) => {
      if (bytes !== null) throw new Error(`an answer of ${address} to no request`);
    };
  }

  /** Writes a request, sometimes piece by piece. @returns when its last bytes are sent */
  #write(end: End<Bytes>, request: HttpRequest): number {
    const random = this.#random;
    const { method, path, headers, body = "", raw, bodyDelayMs = 0, halfCloses } = request;
    if (raw !== undefined) {
      end.send(Buffer.from(raw));
      return nowMs();
    }
    const length = Buffer.byteLength(body);
    const isChunked = request.isChunked ?? (length > 0 && random.chance(chunkedShare));
    const framing = isChunked
      ? { "transfer-encoding": "chunked" }
      : length > 0 || method !== "GET"
        ? { "content-length": String(length) }
        : {};
    const lines = Object.entries({ host: "api.example", ...headers, ...framing });
    const head = `${method} ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`;
    const parts = bodyDelayMs > 0 ? [head] : [];
    const rest = (bodyDelayMs > 0 ? "" : head) + (isChunked ? chunked(body, random) : body);
    if (length > 0 && random.chance(slowShare)) parts.push(...cut(rest, random));
    else parts.push(rest);
    let sendMs = nowMs();
    for (const [i, part] of parts.entries()) {
      if (i > 0) sendMs += i === 1 && bodyDelayMs > 0 ? bodyDelayMs : random.between(0, 40);
      const send = () => end.send(Buffer.from(part));
      if (i === 0) send();
      else at(this.#host, sendMs, send);
    }
    if (halfCloses) at(this.#host, sendMs, () => end.send(null));
    return sendMs;
  }
}

/** Cuts a text at two random places. */
function cut(text: string, random: Random): readonly string[] {
  const [first, second] = [random.below(text.length), random.below(text.length)].sort((a, b) => a - b);
  return [text.slice(0, first), text.slice(first, second), text.slice(second)].filter((part) => part !== "");
}

/** A body as chunks (RFC 9112 section 7.1). */
function chunked(body: string, random: Random): string {
  const chunks = cut(body, random).map((part) => `${part.length.toString(16)}\r\n${part}\r\n`);
  return `${chunks.join("")}0\r\n\r\n`;
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
