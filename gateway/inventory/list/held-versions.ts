/** Bounds the memory of old versions of the list that slow readers still read. */
import type { Body } from "./snapshot.ts";

/**
 * Counts the memory of the versions that are being sent. A reader keeps the pieces of its version alive. Versions share
 * every piece that did not change between them, and a shared piece counts once.
 *
 * When they take too much, the readers of the oldest version are cut off. These began first and are still not done, so
 * they are the slowest. A new reader is never refused for what others hold.
 */
export class HeldVersions {
  readonly #maxBytes: number;
  /** What cuts each reader off, for each version; the oldest version first. */
  readonly #readers = new Map<Body, Set<() => void>>();
  readonly #uses = new Map<Buffer, number>();
  #bytes = 0;

  /** @param maxBytes what may be held in addition to about one version */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Counts a body from the start of its response.
   *
   * @param cutOff ends the response
   * @returns releases the body; to be called when the response is over
   */
  hold(body: Body, cutOff: () => void): () => void {
    const readers = this.#readers.get(body) ?? this.#add(body);
    const reader = () => cutOff(); // a function of its own for each reader
    readers.add(reader);
    return () => {
      readers.delete(reader);
      if (readers.size === 0 && this.#readers.get(body) === readers) this.#drop(body);
    };
  }

  #add(body: Body): Set<() => void> {
    for (const [oldest, slowest] of this.#readers) {
      if (this.#bytes - body.length < this.#maxBytes) break;
      this.#drop(oldest);
      for (const cutOff of slowest) cutOff();
    }
    const readers = new Set<() => void>();
    this.#readers.set(body, readers);
    for (const piece of body.pieces) this.#use(piece, 1);
    return readers;
  }

  #drop(body: Body): void {
    this.#readers.delete(body);
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
