/** Serves readers one after the other. */
import { ApiError } from "../../http/api-error.ts";

/** A queue of readers. The first of them is served, and the next when that has ended. */
export class ServingQueue {
  readonly #timeoutMs: number;
  /** Resolves when the latest reader has been served. */
  #last: Promise<unknown> = Promise.resolve();

  /** @param timeoutMs the longest wait in the queue */
  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Serves a reader after all that came before it.
   *
   * @param sinceMs when its wait began, by `performance.now()`
   * @throws ApiError timeout for a reader that has waited for too long; what `work` throws
   */
  serve<T>(sinceMs: number, work: () => Promise<T>): Promise<T> {
    const served = this.#last.then(() => {
      if (performance.now() - sinceMs <= this.#timeoutMs) return work();
      throw new ApiError("timeout", { cause: new Error("too many differences were asked for at once") });
    });
    // Without its result: a body may be as large as the list, and an error is its reader's.
    this.#last = served.then(
      () => {},
      () => {},
    );
    return served;
  }
}
