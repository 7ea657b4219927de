/** Bounds the memory of slow readers, and of the old versions of the list that they still read. */
import type { Body } from "./snapshot.ts";

/** What a response under way costs beside its body: its request, its part of the connection, timers, in bytes. */
const readerBytes = 32 * 1024;

/** Maximum readers that are cut off for a new one, so that it does not hold up the event loop. */
const cutTogether = 32;

/**
 * A search for readers to cut off frees a sixteenth of the bound, so that it pays for many new ones. Accounts within a
 * sixteenth of the one that takes the most count as equals.
 */
const nearly = 15 / 16;

/** A body that is read. */
interface Pinned {
  readonly body: Body;
  /** Bytes that no body had pinned before it. */
  readonly newBytes: number;
  readers: number;
}

/** A response under way. */
interface Reader {
  readonly accountId: string;
  readonly pinned: Pinned;
  /** Ends it. */
  readonly cutOff: () => void;
}

/**
 * Bounds the memory that slow readers take. While a body is sent, it keeps its pieces alive, even when newer snapshots
 * have replaced them. Bodies share the pieces that did not change between them, and a shared piece counts once. Each
 * reader counts, too, however many of them share a body.
 *
 * Above the bound, the account that takes the most bytes loses its first readers of the oldest body that it reads: they
 * are the slow ones, as they are still not done. A new reader is never refused.
 */
export class PinnedBodies {
  readonly #maxBytes: number;
  /** The bodies that are read. */
  readonly #bodies = new Map<Body, Pinned>();
  readonly #accounts = new Map<string, Account>();
  readonly #pieces = new Pieces();
  #readers = 0;
  /** The length of the longest body so far. It never falls: the end of a long body would cut off many readers. */
  #longest = 0;

  /** @param maxBytes that may be taken in addition to twice the longest body: one reader alone is never cut off */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Counts a body from the start of its response.
   *
   * @param accountId of the reader
   * @param cutOff ends the response
   * @returns a function that releases the body; to be called when the response is over
   */
  pin(body: Body, accountId: string, cutOff: () => void): () => void {
    this.#longest = Math.max(this.#longest, body.length);
    this.#makeRoom(body);
    const pinned = this.#bodies.get(body) ?? { body, newBytes: this.#pieces.add(body), readers: 0 };
    this.#bodies.set(body, pinned);
    const account = this.#accounts.get(accountId) ?? new Account();
    this.#accounts.set(accountId, account);
    const reader = { accountId, pinned, cutOff };
    account.add(reader);
    pinned.readers += 1;
    this.#readers += 1;
    return () => this.#end(reader);
  }

  /** Makes room for one more reader of a body. If readers have to be cut off for it, room for the next ones, too. */
  #makeRoom(body: Body): void {
    const newBytes = this.#bodies.has(body) ? 0 : body.length;
    const excessBytes = () => this.#pieces.bytes + this.#readers * readerBytes + newBytes - 2 * this.#longest;
    if (excessBytes() < this.#maxBytes) return;
    for (const reader of this.#slowest().take(cutTogether)) {
      if (excessBytes() < this.#maxBytes * nearly) return;
      this.#end(reader);
      reader.cutOff();
    }
  }

  /** The readers to cut off, each of which has to end before the next one is asked for. */
  *#slowest(): Generator<Reader, void> {
    while (this.#accounts.size > 0) {
      let mostBytes = 0;
      for (const { bytes } of this.#accounts.values()) mostBytes = Math.max(mostBytes, bytes);
      for (const account of this.#accounts.values()) while (account.bytes >= mostBytes * nearly) yield account.first;
    }
  }

  /** Counts out a reader. Does nothing for one that was cut off before. */
  #end(reader: Reader): void {
    const { accountId, pinned } = reader;
    const account = this.#accounts.get(accountId);
    if (!account?.delete(reader)) return;
    if (account.bytes === 0) this.#accounts.delete(accountId);
    this.#readers -= 1;
    pinned.readers -= 1;
    if (pinned.readers > 0) return;
    this.#bodies.delete(pinned.body);
    this.#pieces.remove(pinned.body);
  }
}

/** What an account reads. */
class Account {
  /** By body. The body that it began to read first comes first, and so does the first reader of each. */
  readonly #readers = new Map<Pinned, Set<Reader>>();
  /** What its bodies had new when they were pinned, and its readers. */
  #sumBytes = 0;
  /** The length of its longest body so far. */
  #longest = 0;

  /**
   * The bytes that it takes. To save work it does not look at the pieces again: each body counts with the bytes that
   * were new when it was pinned, but the oldest one with the length of the longest.
   */
  get bytes(): number {
    const [oldest] = this.#readers.keys();
    return oldest ? this.#sumBytes - oldest.newBytes + this.#longest : 0;
  }

  /** The first reader of the oldest body. There has to be one. */
  get first(): Reader {
    const [readers] = this.#readers.values();
    const [first] = readers!;
    return first!;
  }

  add(reader: Reader): void {
    const { pinned } = reader;
    const readers = this.#readers.get(pinned) ?? new Set();
    if (readers.size === 0) this.#sumBytes += pinned.newBytes;
    this.#readers.set(pinned, readers.add(reader));
    this.#sumBytes += readerBytes;
    this.#longest = Math.max(this.#longest, pinned.body.length);
  }

  /** @returns whether it was there */
  delete(reader: Reader): boolean {
    const { pinned } = reader;
    const readers = this.#readers.get(pinned);
    if (!readers?.delete(reader)) return false;
    this.#sumBytes -= readerBytes;
    if (readers.size > 0) return true;
    this.#sumBytes -= pinned.newBytes;
    return this.#readers.delete(pinned);
  }
}

/** What a body's list of pieces takes for each piece, in bytes. */
const referenceBytes = 8;

/** The memory under pinned pieces. A block that several pieces view counts once, however many bodies have it. */
class Pieces {
  bytes = 0;
  readonly #uses = new Map<ArrayBufferLike, number>();

  /** @returns the bytes that it adds */
  add({ pieces }: Body): number {
    const before = this.bytes;
    this.bytes += pieces.length * referenceBytes;
    for (const { buffer } of pieces) {
      const uses = this.#uses.get(buffer) ?? 0;
      if (uses === 0) this.bytes += buffer.byteLength;
      this.#uses.set(buffer, uses + 1);
    }
    return this.bytes - before;
  }

  remove({ pieces }: Body): void {
    this.bytes -= pieces.length * referenceBytes;
    for (const { buffer } of pieces) {
      const uses = this.#uses.get(buffer)! - 1;
      if (uses > 0) this.#uses.set(buffer, uses);
      else {
        this.#uses.delete(buffer);
        this.bytes -= buffer.byteLength;
      }
    }
  }
}
