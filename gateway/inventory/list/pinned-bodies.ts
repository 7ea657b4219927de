/** Bounds the memory of slow readers, and of the old versions of the list that they still read. */
import type { Body } from "./snapshot.ts";

/** What a response under way costs beside its body: its request, its part of the connection, timers, in bytes. */
const readerBytes = 32 * 1024;

/** Readers that are cut off in one step: of those that share a body, no more of them than necessary are lost. */
const cutTogether = 32;

/** The bodies that one account is reading. */
interface Account {
  /** Abort callbacks of this account's responses, by body, the body that it began first at the front. */
  readonly readers: Map<Body, Set<() => void>>;
  readonly pieces: Pieces;
}

/**
 * Bounds the memory that slow readers take. While a body is sent, it keeps its pieces alive, even when newer snapshots
 * have replaced them. Bodies share the pieces that did not change between them, and a shared piece counts once. Each
 * reader counts, too, however many of them share a body.
 *
 * Above the bound, the account that takes the most bytes loses its first readers of the body that it began first: they
 * are the slow ones, as they are still not done. A new reader is never refused.
 */
export class PinnedBodies {
  readonly #maxBytes: number;
  readonly #accounts = new Map<string, Account>();
  readonly #pieces = new Pieces();

  /** @param maxBytes bytes that may be taken in addition to two bodies */
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
    const account = this.#accounts.get(accountId) ?? { readers: new Map(), pieces: new Pieces() };
    this.#accounts.set(accountId, account);
    const readers = account.readers.get(body) ?? this.#begin(account, body);
    const reader = () => cutOff(); // a function of its own for each reader
    readers.add(reader);
    this.#count(account, readerBytes);
    return () => {
      if (readers.delete(reader)) this.#end(accountId, account, body);
    };
  }

  /** Cuts readers off until there is room for one more reader of a body. */
  #makeRoom(body: Body): void {
    const isNew = ![...this.#accounts.values()].some(({ readers }) => readers.has(body));
    const maxBytes = () => this.#maxBytes + 2 * this.#largest(body) - (isNew ? body.length : 0);
    while (this.#accounts.size > 0 && this.#pieces.bytes >= maxBytes()) this.#cutSome();
  }

  /** The length of the largest body, the new one among them: one reader alone is never cut off. */
  #largest(body: Body): number {
    let largest = body.length;
    for (const { readers } of this.#accounts.values()) {
      for (const { length } of readers.keys()) largest = Math.max(largest, length);
    }
    return largest;
  }

  #begin({ readers, pieces }: Account, body: Body): Set<() => void> {
    const callbacks = new Set<() => void>();
    readers.set(body, callbacks);
    pieces.add(body);
    this.#pieces.add(body);
    return callbacks;
  }

  /** Counts out a reader that has ended. */
  #end(accountId: string, account: Account, body: Body): void {
    const { readers, pieces } = account;
    this.#count(account, -readerBytes);
    if (readers.get(body)!.size > 0) return;
    readers.delete(body);
    pieces.remove(body);
    this.#pieces.remove(body);
    if (readers.size === 0) this.#accounts.delete(accountId);
  }

  #count({ pieces }: Account, bytes: number): void {
    pieces.bytes += bytes;
    this.#pieces.bytes += bytes;
  }

  /** Ends responses of the account that takes the most: its first ones with the body that it began first. */
  #cutSome(): void {
    // Among equals: the account that began first.
    const [accountId, account] = [...this.#accounts].reduce((most, next) =>
      next[1].pieces.bytes > most[1].pieces.bytes ? next : most,
    );
    const [body, readers] = account.readers.entries().next().value!;
    for (const cutOff of [...readers.values().take(cutTogether)]) {
      readers.delete(cutOff);
      this.#end(accountId, account, body);
      cutOff();
    }
  }
}

/** The memory under pinned pieces. A block that several pieces view counts once, however many bodies have it. */
class Pieces {
  bytes = 0;
  readonly #uses = new Map<ArrayBufferLike, number>();

  add({ pieces }: Body): void {
    for (const { buffer } of pieces) {
      const uses = this.#uses.get(buffer) ?? 0;
      if (uses === 0) this.bytes += buffer.byteLength;
      this.#uses.set(buffer, uses + 1);
    }
  }

  remove({ pieces }: Body): void {
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
