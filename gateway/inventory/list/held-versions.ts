/** Bounds the memory of old versions of the list that slow readers still read. */
import { ApiError } from "../../http/errors.ts";
import type { Body } from "./snapshot.ts";

/**
 * Counts the memory of the versions that are being sent. A reader keeps the pieces of its version alive. Versions share
 * every piece that did not change between them, and a shared piece counts once.
 */
export class HeldVersions {
  readonly #maxBytes: number;
  readonly #readers = new Map<Body, number>();
  readonly #uses = new Map<Buffer, number>();
  #bytes = 0;

  /** @param maxBytes what may be held in addition to about one version */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Counts a body from the start of its response.
   *
   * @returns releases the body; to be called when the response is over
   * @throws ApiError service_unavailable when slow readers hold too much already
   */
  hold(body: Body): () => void {
    const readers = this.#readers.get(body) ?? 0;
    if (readers === 0) {
      if (this.#bytes - body.length >= this.#maxBytes) throw tooMuch(this.#bytes);
      for (const piece of body.pieces) this.#use(piece, 1);
    }
    this.#readers.set(body, readers + 1);
    return () => this.#release(body);
  }

  #release(body: Body): void {
    const readers = this.#readers.get(body)! - 1;
    if (readers > 0) {
      this.#readers.set(body, readers);
    } else {
      this.#readers.delete(body);
      for (const piece of body.pieces) this.#use(piece, -1);
    }
  }

  #use(piece: Buffer, more: 1 | -1): void {
    const before = this.#uses.get(piece) ?? 0;
    if (before + more === 0) this.#uses.delete(piece);
    else this.#uses.set(piece, before + more);
    if (before === 0) this.#bytes += piece.length;
    else if (before + more === 0) this.#bytes -= piece.length;
  }
}

function tooMuch(bytes: number): ApiError {
  const cause = new Error(`readers of the list hold ${bytes} bytes of its versions`);
  return new ApiError("service_unavailable", { cause, headers: { "Retry-After": "5" } });
}
