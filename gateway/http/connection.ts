/** One connection of the public server. It answers one request at a time; what comes meanwhile waits as bytes. */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Shares } from "../../runtime/shares.ts";
import { askWhetherThere } from "./leaving-clients.ts";
import { lineEndsIn, maxLineEnds } from "./request-body.ts";
import { hurry } from "./request-context.ts";

/** How long a closing connection stays open for a client that is still sending, or for the rest of a head at a stop. */
export const lingerMs = 1_000;

/** Bytes that may wait behind a request. */
const maxWaitingBytes = 64 * 1024;

/** Bytes that may wait behind a request that is held for a change. With more, that request is answered at once. */
const maxBehindHeldBytes = 4 * 1024;

/** Bytes of a head that do not count as waiting: a head of a usual size arrives even when no more bytes may wait. */
const headBytesWithoutRoom = 4 * 1024;

/** Line breaks before a request that are ignored: some clients send one after a body. */
const maxBreaks = 8;

/** Faults of a body that Node's parser lets through. */
export type BodyFault = "cut short" | "too many pieces";

const emptyLine = Buffer.from("\r\n\r\n");
const isBreak = (byte: number | undefined) => byte === 0x0d || byte === 0x0a;
const none = Buffer.alloc(0);

/**
 * Stands between a socket and Node's parser. The parser gets the bytes of one request, and those of the next one after
 * the response has closed. So a client can make the gateway keep one request and `maxWaitingBytes`, whatever it sends
 * (pipelining, RFC 9112 section 9.3.2), and responses need no queue.
 */
export class Connection {
  readonly socket: Socket;
  readonly #parse: (bytes: Buffer) => void;
  /** Tells the parser that the client has ended. */
  readonly #endParsing: () => void;
  #open: ServerResponse | undefined;
  /** Bytes of the open request's body that have not arrived, where its head says how long it is. */
  #bodyLeft = 0;
  /** Bytes that the parser has of an unfinished head. */
  #headBytes = 0;
  /** Line breaks since the last request. */
  #breaks = 0;
  #waiting: Buffer = none;
  readonly #room: Shares;
  readonly #owner: string;
  readonly #onInvalid: (fault: BodyFault) => void;
  #bodyLineEnds = 0;
  /** Which of the arriving bytes go to the parser. It only narrows, from all of them to none. */
  #parsed: "requests" | "open body" | "nothing" = "requests";
  /** Set when no more bytes come after those that wait: the client has ended, or bytes were dropped. */
  #end: "of client" | "of room" | undefined;

  /**
   * @param room the bytes that may wait on all connections together; those of unfinished long heads count, too
   * @param owner the name whose share of `room` this connection takes
   * @param onInvalid has to end the connection
   */
  constructor(socket: Socket, room: Shares, owner: string, onInvalid: (fault: BodyFault) => void) {
    this.socket = socket;
    this.#room = room;
    this.#owner = owner;
    this.#onInvalid = onInvalid;
    this.#parse = socket.listeners("data")[0] as (bytes: Buffer) => void; // of Node's HTTP server
    this.#endParsing = socket.listeners("end").at(-1) as () => void; // the first one is that of the socket itself
    socket.off("data", this.#parse).off("end", this.#endParsing);
    // Once a data listener that is not Node's is there, Node gives up its short cut from the socket to the parser.
    socket.on("data", (bytes: Buffer) => {
      if (this.#end === undefined) this.#receive(bytes);
    });
    socket.on("end", () => {
      this.#end ??= "of client";
      if (this.#open) askWhetherThere(this.#open);
      this.#finish();
    });
    socket.on("close", () => {
      this.#takeWaiting();
      this.#countHead(0);
    });
    socket.destroySoon = () => this.close(); // Node calls it after a response that is the last
  }

  /** The response under way. */
  get openResponse(): ServerResponse | undefined {
    return this.#open;
  }

  /** Whether neither a request nor a part of one is here. */
  get isIdle(): boolean {
    return this.#open === undefined && this.#headBytes === 0 && this.#waiting.length === 0;
  }

  /** Notes the response of a request whose head has been parsed. */
  take(response: ServerResponse): void {
    this.#open = response;
    this.#breaks = 0;
    response.on("close", this.#closed);
    if (!response.shouldKeepAlive) this.endAfterOpen();
    const { headers } = response.req;
    this.#bodyLeft = Number(headers["content-length"] ?? 0);
    // An answer before the end of the body is the last: the rest of the body is not waited for (RFC 9112 section 9.3).
    if (this.#bodyLeft > 0 || headers["transfer-encoding"] !== undefined) response.shouldKeepAlive = false;
  }

  /** Lets the connection go on after the open response, if its request is here as a whole. */
  #keepAlive(): void {
    const open = this.#open;
    if (open?.req.complete && !open.headersSent && this.#parsed === "requests") open.shouldKeepAlive = true;
  }

  /** Makes the open response the last one. If its head has promised otherwise, the connection closes all the same. */
  endAfterOpen(): void {
    if (this.#parsed === "requests") this.#parsed = "open body";
    if (this.#open?.headersSent === false) this.#open.shouldKeepAlive = false;
    this.#takeWaiting();
  }

  /** Parses nothing any more. The open response may still end. */
  stopParsing(): void {
    this.#parsed = "nothing";
    this.#takeWaiting();
    this.socket.resume(); // what still arrives is dropped
  }

  /**
   * Closes a connection whose client may still be sending. Closing it at once would take the answer away from such a
   * client before it has read it (RFC 9112 section 9.6). What still arrives is dropped.
   */
  close(): void {
    if (this.socket.writableEnded || this.socket.destroyed) return;
    this.stopParsing();
    this.socket.end();
    const timer = setTimeout(() => this.socket.destroy(), lingerMs);
    this.socket.once("close", () => clearTimeout(timer));
  }

  #receive(bytes: Buffer): void {
    let at = 0;
    while (this.#parsed !== "nothing") {
      if (this.isIdle) {
        // Line breaks before a request mean nothing (RFC 9112 section 2.2).
        for (; isBreak(bytes[at]); at++) this.#breaks += 1;
        // A client that sends nothing else would keep an idle connection open for ever.
        if (this.#breaks > maxBreaks && at >= bytes.length) return void this.close();
      }
      if (at >= bytes.length) return;
      if (this.#open?.req.complete || this.#waiting.length > 0) {
        this.#holdBack(bytes.subarray(at));
        return;
      }
      const isChunked = this.#open !== undefined && this.#bodyLeft === 0;
      const end = this.#endOfPiece(bytes, at);
      const piece = at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end);
      if (isChunked) this.#bodyLineEnds += lineEndsIn(piece);
      if (this.#bodyLineEnds > maxLineEnds) return void this.#onInvalid("too many pieces");
      this.#parse(piece);
      this.#countHead(this.#open === undefined ? this.#headBytes + end - at : 0);
      at = end;
      this.#keepAlive();
    }
  }

  /** The first place where a head, or the body of the open request, may end. Nothing after it may be parsed yet. */
  #endOfPiece(bytes: Buffer, start: number): number {
    if (this.#bodyLeft > 0) {
      const end = Math.min(start + this.#bodyLeft, bytes.length);
      this.#bodyLeft -= end - start;
      return end;
    }
    // An empty line ends heads and chunked bodies. Its beginning may be in the bytes that came before these.
    let end = isBreak(bytes[start]) ? start : bytes.indexOf(emptyLine, start);
    if (end === -1) return bytes.length;
    // After a head, a further line break may belong to the body. Line breaks after a chunked body go with its bytes.
    if (this.#open === undefined) return end === start ? end + 1 : end + emptyLine.length;
    while (isBreak(bytes[end])) end += 1;
    return end;
  }

  /**
   * Keeps bytes for after the open response. Reading goes on, because nothing else shows that a client leaves. What is
   * too much is dropped, and the connection ends after the last request that is here as a whole.
   */
  #holdBack(bytes: Buffer): void {
    if (this.#parsed !== "requests") return;
    const before = this.#takeWaiting();
    const all = before.length + bytes.length;
    const length = Math.min(all, maxWaitingBytes, this.#room.left(this.#owner));
    if (length < all) this.#end = "of room";
    if (length > maxBehindHeldBytes && this.#open) hurry(this.#open);
    this.#room.take(this.#owner, length);
    this.#waiting = Buffer.allocUnsafeSlow(length); // a few bytes of the shared pool would keep 8 KiB alive
    before.copy(this.#waiting);
    bytes.copy(this.#waiting, before.length);
    if (this.#end !== undefined) this.#finish();
  }

  #takeWaiting(): Buffer {
    const waiting = this.#waiting;
    this.#room.release(this.#owner, waiting.length);
    this.#waiting = none;
    return waiting;
  }

  /** Counts a head that has not ended as bytes that wait. Without room for them the connection closes. */
  #countHead(bytes: number): void {
    if (bytes === this.#headBytes) return; // as after each whole request
    const roomFor = (part: number) => Math.max(0, part - headBytesWithoutRoom);
    this.#room.release(this.#owner, roomFor(this.#headBytes));
    const hasRoom = this.#room.take(this.#owner, roomFor(bytes));
    this.#headBytes = hasRoom ? bytes : 0;
    if (hasRoom) return;
    this.stopParsing();
    this.socket.destroy();
  }

  readonly #closed = () => {
    this.#open = undefined;
    this.#bodyLineEnds = 0;
    if (this.#parsed !== "requests") return this.close();
    // In a later turn: otherwise this one would answer all waiting requests that need no I/O before those of others.
    if (this.#waiting.length > 0) setImmediate(this.#goOn);
    else if (this.#end !== undefined) this.#finish();
  };

  readonly #goOn = () => {
    if (this.#waiting.length === 0) return; // the connection has ended meanwhile
    this.#receive(this.#takeWaiting());
    if (this.#end === "of client" && this.#open) askWhetherThere(this.#open);
    if (this.#end !== undefined) this.#finish();
  };

  /** Whether a request may begin in the bytes that wait. A head whose rest was dropped is no request. */
  get #mayHoldRequest(): boolean {
    return this.#waiting.length > 0 && (this.#end !== "of room" || this.#waiting.includes(emptyLine));
  }

  /** Acts on the end of the bytes, after the answers to all that came before it. */
  #finish(): void {
    if (this.#parsed === "nothing" || this.#mayHoldRequest) return;
    if (this.#open?.req.complete) this.endAfterOpen();
    else if (this.#end === "of room") this.close();
    // Reported here, because the parser would ignore a missing end of the body when the head has asked for an upgrade.
    else if (this.#open) this.#onInvalid("cut short");
    else this.#endParsing(); // a part of a head is an error of the parser now
  }
}
