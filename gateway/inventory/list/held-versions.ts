/** Bounds the memory of old versions of the list that slow readers still read. */
import type { Body } from "./snapshot.ts";

/** A version that is being sent. */
interface Version {
  /** What cuts its readers off, by their account. */
  readonly readers: Map<string, Set<() => void>>;
  /** What it takes beyond the versions before it. */
  bytes: number;
}

/**
 * Counts the memory of the versions that are being sent. A reader keeps the pieces of its version alive. Versions share
 * every piece that did not change between them, and a shared piece counts once.
 *
 * When they take too much, the account whose versions take the most loses its readers of the oldest one: these began
 * first and are still not done, so they are its slowest. So no account is cut off for what others hold, and a new reader
 * is never refused.
 */
export class HeldVersions {
  readonly #maxBytes: number;
  /** The oldest version first. */
  readonly #versions = new Map<Body, Version>();
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
    const { readers } = this.#versions.get(body) ?? this.#add(body);
    const ofAccount = readers.get(accountId) ?? new Set();
    readers.set(accountId, ofAccount);
    const reader = () => cutOff(); // a function of its own for each reader
    ofAccount.add(reader);
    return () => {
      if (ofAccount.delete(reader) && ofAccount.size === 0) this.#leave(body, accountId);
    };
  }

  #add(body: Body): Version {
    while (this.#versions.size > 0 && this.#bytes - body.length >= this.#maxBytes) this.#cutOne();
    const before = this.#bytes;
    for (const piece of body.pieces) this.#use(piece, 1);
    const version: Version = { readers: new Map(), bytes: this.#bytes - before };
    this.#versions.set(body, version);
    return version;
  }

  /** Cuts one account's readers of one version off. */
  #cutOne(): void {
    const held = new Map<string, number>();
    for (const { readers, bytes } of this.#versions.values()) {
      for (const accountId of readers.keys()) held.set(accountId, (held.get(accountId) ?? 0) + bytes);
    }
    // Of equals the one that began first.
    const [greediest] = [...held].reduce((most, next) => (next[1] > most[1] ? next : most));
    const [body, { readers }] = [...this.#versions].find(([, version]) => version.readers.has(greediest))!;
    const slowest = [...readers.get(greediest)!];
    readers.get(greediest)!.clear();
    this.#leave(body, greediest);
    for (const cutOff of slowest) cutOff();
  }

  /** An account reads a version no longer. */
  #leave(body: Body, accountId: string): void {
    const { readers, bytes } = this.#versions.get(body)!;
    readers.delete(accountId);
    if (readers.size > 0) return;
    this.#versions.delete(body);
    const before = this.#bytes;
    for (const piece of body.pieces) this.#use(piece, -1);
    const left = bytes - (before - this.#bytes);
    const shared = left > 0 && body.pieces.find((piece) => this.#uses.has(piece));
    if (!shared) return;
    // The next version that has them keeps these pieces alive from now on.
    const heir = [...this.#versions].find(([{ pieces }]) => pieces.includes(shared))!;
    heir[1].bytes += left;
  }

  #use(piece: Buffer, more: 1 | -1): void {
    const before = this.#uses.get(piece) ?? 0;
    if (before + more === 0) this.#uses.delete(piece);
    else this.#uses.set(piece, before + more);
    if (before === 0) this.#bytes += piece.length;
    else if (before + more === 0) this.#bytes -= piece.length;
  }
}
