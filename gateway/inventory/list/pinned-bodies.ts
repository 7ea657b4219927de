/** Bounds the memory of slow readers, and of the old versions of the list that they still read. */
import type { Body } from "./snapshot.ts";

/** What a response under way costs beside its body: its request, its part of the connection, timers, in bytes. */
const readerBytes = 32 * 1024;

/** Maximum readers that are cut off in one step: a body with many readers loses hardly more than it has to. */
const cutTogether = 32;

/** A body that is read. */
interface Pinned {
  /** Bytes that no body had pinned before it. */
  readonly newBytes: number;
  /** Abort callbacks of its responses by account, the first ones at the front. */
  readonly readers: Map<string, Set<() => void>>;
}

/** What an account reads. */
interface Reading {
  /** The body that was pinned first. */
  readonly oldest: Body;
  readonly bodyBytes: number;
  readonly readers: number;
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
  /** The bodies that are read; the one that was pinned first comes first. */
  readonly #bodies = new Map<Body, Pinned>();
  readonly #pieces = new Pieces();
  #readers = 0;

  /** @param maxBytes bytes that may be taken in addition to twice the largest body */
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
    this.#makeRoom(body);
    const { readers } = this.#bodies.get(body) ?? this.#begin(body);
    const ofAccount = readers.get(accountId) ?? new Set();
    readers.set(accountId, ofAccount);
    const reader = () => cutOff(); // a function of its own for each reader
    ofAccount.add(reader);
    this.#readers += 1;
    return () => this.#end(body, accountId, ofAccount, reader);
  }

  /** Cuts readers off until there is room for one more reader of a body. */
  #makeRoom(body: Body): void {
    const newBytes = this.#bodies.has(body) ? 0 : body.length;
    const takenBytes = () => this.#pieces.bytes + this.#readers * readerBytes + newBytes;
    while (this.#readers > 0 && takenBytes() >= this.#maxBytes + 2 * this.#largest(body)) this.#cutSome();
  }

  /** The length of the largest body, the new one among them: one reader alone is never cut off. */
  #largest(body: Body): number {
    let largest = body.length;
    for (const { length } of this.#bodies.keys()) largest = Math.max(largest, length);
    return largest;
  }

  #begin(body: Body): Pinned {
    const pinned = { newBytes: this.#pieces.add(body), readers: new Map() };
    this.#bodies.set(body, pinned);
    return pinned;
  }

  /** Counts out a reader. Does nothing for one that was cut off before. */
  #end(body: Body, accountId: string, ofAccount: Set<() => void>, reader: () => void): void {
    if (!ofAccount.delete(reader)) return;
    this.#readers -= 1;
    if (ofAccount.size > 0) return;
    const { readers } = this.#bodies.get(body)!;
    readers.delete(accountId);
    if (readers.size > 0) return;
    this.#bodies.delete(body);
    this.#pieces.remove(body);
  }

  /** Ends responses of the account that takes the most; among equals, of the one with the oldest body. */
  #cutSome(): void {
    const takenBytes = ({ bodyBytes, readers }: Reading) => bodyBytes + readers * readerBytes;
    const [accountId, { oldest }] = [...this.#readByAccount()].reduce((most, next) =>
      takenBytes(next[1]) > takenBytes(most[1]) ? next : most,
    );
    const ofAccount = this.#bodies.get(oldest)!.readers.get(accountId)!;
    for (const cutOff of [...ofAccount.values().take(cutTogether)]) {
      this.#end(oldest, accountId, ofAccount, cutOff);
      cutOff();
    }
  }

  /**
   * Sums up what each account reads, when one has to be cut. To save work it does not look at the pieces again: each
   * body counts with the bytes that were new when it was pinned. The sum is at least the account's longest body.
   */
  #readByAccount(): Map<string, Reading> {
    const accounts = new Map<string, Reading>();
    for (const [body, { newBytes, readers }] of this.#bodies) {
      for (const [accountId, { size }] of readers) {
        const before = accounts.get(accountId) ?? { oldest: body, bodyBytes: 0, readers: 0 };
        const bodyBytes = Math.max(before.bodyBytes + newBytes, body.length);
        accounts.set(accountId, { oldest: before.oldest, bodyBytes, readers: before.readers + size });
      }
    }
    return accounts;
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
