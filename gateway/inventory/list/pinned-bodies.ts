/** Bounds the memory of slow readers, and of the old versions of the list that they still read. */
import { lowerBound } from "./lower-bound.ts";
import type { Body } from "./snapshot.ts";

/** Bytes that a response under way costs beside its body: its request, its part of the connection, timers. */
const readerBytes = 32 * 1024;

/** The share of the bound down to which a search cuts slow readers off: one search makes room for many new ones. */
const takenAfter = 15 / 16;

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

/** The readers of an account, by body: bodies in the order in which it began to read them, and readers likewise. */
type AccountReaders = Map<Pinned, Set<Reader>>;

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
  readonly #accounts = new Map<string, AccountReaders>();
  readonly #pieces = new Pieces();
  #readers = 0;
  /** The length of the longest body so far. It never falls: a bound that falls would cut off many readers. */
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
    const ofAccount: AccountReaders = this.#accounts.get(accountId) ?? new Map();
    this.#accounts.set(accountId, ofAccount);
    const reader = { accountId, pinned, cutOff };
    ofAccount.set(pinned, (ofAccount.get(pinned) ?? new Set()).add(reader));
    pinned.readers += 1;
    this.#readers += 1;
    return () => this.#end(reader);
  }

  /** Makes room for one more reader of a body. If readers have to be cut off for it, room for the next ones, too. */
  #makeRoom(body: Body): void {
    const newBytes = () => (this.#bodies.has(body) ? 0 : body.length); // a cut may end its last reader
    const excessBytes = () => this.#pieces.bytes + this.#readers * readerBytes + newBytes() - 2 * this.#longest;
    if (excessBytes() < this.#maxBytes) return;
    for (const reader of this.#slowest()) {
      this.#end(reader);
      reader.cutOff();
      if (excessBytes() < this.#maxBytes * takenAfter) return;
    }
  }

  /** Gives the readers to cut off. Each has to end before the next one is asked for. */
  *#slowest(): Generator<Reader, void> {
    // The lightest account first. Of equals, the one that has read for longest comes last.
    const accounts = Array.from(this.#accounts.values(), weigh).reverse();
    accounts.sort((one, other) => bytesOf(one) - bytesOf(other));
    for (let account = accounts.pop(); account; account = accounts.pop()) {
      const [pinned, readers] = account.readers.entries().next().value!;
      yield readers.values().next().value!;
      account.count -= 1;
      if (!account.readers.has(pinned)) account.bodyBytes.pop();
      if (account.count > 0) insert(account, accounts);
    }
  }

  /** Stops counting a reader, unless it was cut off before. */
  #end(reader: Reader): void {
    const { accountId, pinned } = reader;
    const ofAccount = this.#accounts.get(accountId);
    const readers = ofAccount?.get(pinned);
    if (!readers?.delete(reader)) return;
    if (readers.size === 0) ofAccount!.delete(pinned);
    if (ofAccount!.size === 0) this.#accounts.delete(accountId);
    this.#readers -= 1;
    pinned.readers -= 1;
    if (pinned.readers > 0) return;
    this.#bodies.delete(pinned.body);
    this.#pieces.remove(pinned.body);
  }
}

/** An account in a search for slow readers. */
interface Weighed {
  readonly readers: AccountReaders;
  count: number;
  /** The bytes that its bodies take, in order: of the last one, of the last two, and at last of all of them. */
  readonly bodyBytes: number[];
}

/**
 * Weighs an account by the new bytes of its bodies, but at least by the length of its longest body: a piece is new only
 * to the first body that pins it, so the bodies of an account may have no new bytes. Of a body that several accounts
 * read, each account has a share by its readers.
 */
function weigh(readers: AccountReaders): Weighed {
  let [count, newBytes, longest] = [0, 0, 0];
  const bodyBytes = [...readers].reverse().map(([pinned, { size }]) => {
    const share = size / pinned.readers;
    count += size;
    newBytes += pinned.newBytes * share;
    longest = Math.max(longest, pinned.body.length * share);
    return Math.max(newBytes, longest);
  });
  return { readers, count, bodyBytes };
}

function bytesOf({ count, bodyBytes }: Weighed): number {
  return count * readerBytes + bodyBytes.at(-1)!;
}

/** Inserts an account before those that take as much, and after the lighter ones. */
function insert(account: Weighed, accounts: Weighed[]): void {
  const bytes = bytesOf(account);
  const place = lowerBound(0, accounts.length, (index) => bytesOf(accounts[index]!) < bytes);
  accounts.splice(place, 0, account);
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
