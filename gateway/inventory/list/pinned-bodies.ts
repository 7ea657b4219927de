/** Bounds the memory of old versions of the list that slow readers still read. */
import type { Body } from "./snapshot.ts";

/** What an account reads. */
interface Account {
  /** What cuts its readers off, by their version; the version that it began first comes first. */
  readonly readers: Map<Body, Set<() => void>>;
  readonly pieces: Pieces;
}

/**
 * Counts the memory of the versions that are being sent. A reader keeps the pieces of its version alive. Versions share
 * every piece that did not change between them, and a shared piece counts once.
 *
 * When they take too much, the account that holds the most loses all its readers of one version: the one that it began
 * to read first. These readers are still not done, so they are slow. An account that reads one version holds no more
 * than any account that reads several, so it is not cut off for what others hold. A new reader is never refused.
 */
export class HeldVersions {
  readonly #maxBytes: number;
  readonly #accounts = new Map<string, Account>();
  readonly #pieces = new Pieces();

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
    const isNew = ![...this.#accounts.values()].some(({ readers }) => readers.has(body));
    while (isNew && this.#accounts.size > 0 && this.#pieces.bytes - body.length >= this.#maxBytes) this.#cutOne();
    const account = this.#accounts.get(accountId) ?? { readers: new Map(), pieces: new Pieces() };
    this.#accounts.set(accountId, account);
    const readers = account.readers.get(body) ?? this.#begin(account, body);
    const reader = () => cutOff(); // a function of its own for each reader
    readers.add(reader);
    return () => {
      if (readers.delete(reader) && readers.size === 0) this.#end(accountId, account, body);
    };
  }

  #begin({ readers, pieces }: Account, body: Body): Set<() => void> {
    const ofVersion = new Set<() => void>();
    readers.set(body, ofVersion);
    pieces.add(body);
    this.#pieces.add(body);
    return ofVersion;
  }

  #end(accountId: string, { readers, pieces }: Account, body: Body): void {
    readers.delete(body);
    pieces.remove(body);
    this.#pieces.remove(body);
    if (readers.size === 0) this.#accounts.delete(accountId);
  }

  /** Cuts the readers off that the account with the most has on one version. */
  #cutOne(): void {
    // Of equals the one that began first.
    const [accountId, account] = [...this.#accounts].reduce((most, next) =>
      next[1].pieces.bytes > most[1].pieces.bytes ? next : most,
    );
    const [body, readers] = account.readers.entries().next().value!;
    const slowest = [...readers];
    readers.clear();
    this.#end(accountId, account, body);
    for (const cutOff of slowest) cutOff();
  }
}

/** Pieces that are held, each counted once however many versions have it. */
class Pieces {
  bytes = 0;
  readonly #uses = new Map<Buffer, number>();

  add({ pieces }: Body): void {
    for (const piece of pieces) {
      const uses = this.#uses.get(piece) ?? 0;
      if (uses === 0) this.bytes += piece.length;
      this.#uses.set(piece, uses + 1);
    }
  }

  remove({ pieces }: Body): void {
    for (const piece of pieces) {
      const uses = this.#uses.get(piece)! - 1;
      if (uses > 0) this.#uses.set(piece, uses);
      else {
        this.#uses.delete(piece);
        this.bytes -= piece.length;
      }
    }
  }
}
