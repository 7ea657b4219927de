/** Bounds the memory of old versions of the list that slow readers still read. */
import type { Body } from "./snapshot.ts";

/** What cuts the readers of one version off, by their account. */
type Readers = Map<string, Set<() => void>>;

/**
 * Counts the memory of the versions that are being sent. A reader keeps the pieces of its version alive. Versions share
 * every piece that did not change between them, and a shared piece counts once.
 *
 * When they take too much, the account that reads the most versions at once loses its readers of the oldest one: these
 * began first and are still not done, so they are its slowest. So no account is cut off for what others hold, and a new
 * reader is never refused.
 */
export class HeldVersions {
  readonly #maxBytes: number;
  /** The oldest version first. */
  readonly #versions = new Map<Body, Readers>();
  readonly #uses = new Map<Buffer, number>();
  #bytes = 0;

  /** @param maxBytes what may be held in addition to about one version */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Counts a body from the start of its response.
   *
   * @param accountId of the reader
   * @param cutOff ends the response
   * @returns releases the body; to be called when the response is over
   */
  hold(body: Body, accountId: string, cutOff: () => void): () => void {
    const readers = this.#versions.get(body) ?? this.#add(body);
    const ofAccount = readers.get(accountId) ?? new Set();
    readers.set(accountId, ofAccount);
    const reader = () => cutOff(); // a function of its own for each reader
    ofAccount.add(reader);
    return () => {
      if (ofAccount.delete(reader) && ofAccount.size === 0) this.#leave(body, accountId);
    };
  }

  #add(body: Body): Readers {
    while (this.#versions.size > 0 && this.#bytes - body.length >= this.#maxBytes) this.#cutOne();
    const readers: Readers = new Map();
    this.#versions.set(body, readers);
    for (const piece of body.pieces) this.#use(piece, 1);
    return readers;
  }

  /** Cuts one account's readers of one version off. */
  #cutOne(): void {
    const counts = new Map<string, number>();
    for (const readers of this.#versions.values()) {
      for (const accountId of readers.keys()) counts.set(accountId, (counts.get(accountId) ?? 0) + 1);
    }
    // Of equals the one that began first.
    const [greediest] = [...counts].reduce((most, next) => (next[1] > most[1] ? next : most));
    const [body, readers] = [...this.#versions].find(([, ofVersion]) => ofVersion.has(greediest))!;
    const slowest = [...readers.get(greediest)!];
    readers.get(greediest)!.clear();
    this.#leave(body, greediest);
    for (const cutOff of slowest) cutOff();
  }

  /** An account reads a version no longer. */
  #leave(body: Body, accountId: string): void {
    const readers = this.#versions.get(body)!;
    readers.delete(accountId);
    if (readers.size > 0) return;
    this.#versions.delete(body);
    for (const piece of body.pieces) this.#use(piece, -1);
  }

  #use(piece: Buffer, more: 1 | -1): void {
    const before = this.#uses.get(piece) ?? 0;
    if (before + more === 0) this.#uses.delete(piece);
    else this.#uses.set(piece, before + more);
    if (before === 0) this.#bytes += piece.length;
    else if (before + more === 0) this.#bytes -= piece.length;
  }
}
