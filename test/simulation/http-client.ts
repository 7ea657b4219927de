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

/** How often a request is sent behind another one that has no answer yet. */
const pipelinedShare = 0.5;

/** A request that has no answer yet. */
interface OpenRequest {
  readonly request: HttpRequest;
  /** When its last bytes are sent. */
  sentMs: number;
  readonly end: (outcome: HttpOutcome) => void;
}

/** What a connection tells its client. */
interface LineOptions {
  /** There is no request on it any more. */
  readonly onFree: () => void;
  /** The server has ended the connection before it took this request. */
  readonly onRefused: (open: OpenRequest) => void;
}

/** A connection, with the requests on it in the order of their answers. */
class Line {
  readonly #end: End<Bytes>;
  readonly #options: LineOptions;
  readonly #open: OpenRequest[] = [];
  #received: Buffer = Buffer.alloc(0);
  #isLeft = false;

  constructor(end: End<Bytes>, options: LineOptions) {
    this.#end = end;
    this.#options = options;
    end.onMessage = (bytes) => bytes !== null && this.#receive(bytes);
    end.onClose = () => this.#endAll("broken");
  }

  get isUsable(): boolean {
    return !this.#isLeft && !this.#end.isClosed && !this.#end.peer.isClosed;
  }

  /** Whether another request may follow those that are open. */
  get takesMore(): boolean {
    return this.isUsable && this.#open.every(({ request }) => mayBePipelined(request));
  }

  add(open: OpenRequest, write: (end: End<Bytes>) => number): void {
    this.#open.push(open);
    open.sentMs = write(this.#end);
  }

  close(): void {
    this.#end.close();
  }

  /** The server learns at once that its client has left. When it sends something, it learns that nobody is there. */
  leave(): void {
    this.#isLeft = true;
    this.#end.send(null);
    this.#end.onMessage = () => this.#end.close();
    this.#endAll("left");
  }

  #endAll(outcome: "broken" | "left"): void {
    for (const { end } of this.#open.splice(0)) end(outcome);
  }

  #receive(bytes: Buffer): void {
    this.#received = Buffer.concat([this.#received, bytes]);
    while (this.#received.length > 0) {
      const [first] = this.#open;
      if (!first) throw new Error("an answer to no request");
      const { request, sentMs, end } = first;
      const found = parse(this.#received, request.method === "HEAD");
      if (!found) return;
      const { answer, rest } = found;
      this.#received = rest;
      this.#open.shift();
      end(answer);
      if (answer.headers.connection === "close" || request.halfCloses || nowMs() < sentMs) {
        this.close();
        for (const other of this.#open.splice(0)) this.#options.onRefused(other);
        return;
      }
    }
    if (this.#open.length === 0) this.#options.onFree();
  }
}

/** The client of one caller. */
export class HttpClient {
  readonly #network: Network;
  readonly #host: Host;
  readonly #random: Random;
  /** Connections by the address of their gateway: those without a request, and the latest one with some. */
  readonly #idle = new Map<string, Line>();
  readonly #busy = new Map<string, Line>();

  constructor({ network, random }: { readonly network: Network; readonly random: Random }, host: Host) {
    this.#network = network;
    this.#host = host;
    this.#random = random;
  }

  /** Sends a request. Never rejects; without an answer it waits for as long as that takes. */
  send(address: string, request: HttpRequest): Promise<HttpOutcome> {
    const host = this.#host;
    return new Promise((resolve) => {
      let line: Line | undefined;
      let isOver = false;
      const end = (outcome: HttpOutcome) => {
        isOver = true;
        stay();
        resolve(outcome);
      };
      const leave = () => {
        line?.leave();
        end("left");
      };
      const { leavesAfterMs } = request;
      const stay = leavesAfterMs === undefined ? () => {} : at(host, nowMs() + leavesAfterMs, leave);
      const open: OpenRequest = { request, sentMs: 0, end };
      const use = (taken: Line) => {
        line = taken;
        this.#busy.set(address, taken);
        taken.add(open, (connection) => this.#write(connection, request));
      };
      const begin = (connection: End<Bytes>) => {
        if (isOver) return connection.close();
        const begun: Line = new Line(connection, {
          onFree: () => this.#free(address, begun),
          onRefused: ({ request: other, end: endOther }) => void this.send(address, other).then(endOther),
        });
        use(begun);
      };
      const busy = this.#busy.get(address);
      if (busy?.takesMore && mayBePipelined(request) && this.#random.chance(pipelinedShare)) {
        meet("a request behind another one");
        return use(busy);
      }
      const kept = this.keeps(address) ? this.#idle.get(address) : undefined;
      this.#idle.delete(address);
      if (kept) {
        meet("a further request on a connection");
        use(kept);
      } else this.#network.connect<Bytes>(host, address, begin, () => end("refused"));
    });
  }

  /** Whether a connection to a gateway is kept. */
  keeps(address: string): boolean {
    return this.#idle.get(address)?.isUsable ?? false;
  }

  #free(address: string, line: Line): void {
    if (this.#busy.get(address) === line) this.#busy.delete(address);
    if (this.#random.chance(keepShare)) {
      this.#idle.get(address)?.close();
      this.#idle.set(address, line);
    } else line.close();
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

/** Whether others may follow a request before its answer, and it may follow others. */
function mayBePipelined({ method, headers, raw, halfCloses }: HttpRequest): boolean {
  return method === "GET" && raw === undefined && !halfCloses && headers.prefer === undefined;
}

/** @returns the first answer and what follows it; undefined where it is not here as a whole */
function parse(bytes: Buffer, isHead: boolean): { readonly answer: HttpAnswer; readonly rest: Buffer } | undefined {
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
  return { answer: { status, headers, body: body.toString() }, rest: rest.subarray(length) };
}
