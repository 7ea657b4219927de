/** Serves readers one after the other. */
import { ApiError } from "../../http/api-error.ts";

/** A queue of readers. Each gets its turn when all before it have been served. */
export class Turns {
  readonly #timeoutMs: number;
  /** Resolves when the latest reader has been served. */
  #last: Promise<unknown> = Promise.resolve();

  /** @param timeoutMs the longest wait for a turn */
  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Serves a reader when its turn has come.
   *
   * @param sinceMs when its wait began, by `performance.now()`
   * @throws ApiError timeout for a reader whose turn comes too late; what `serve` throws
   */
  take<T>(sinceMs: number, serve: () => Promise<T>): Promise<T> {
    const served = this.#last.then(() => {
      if (performance.now() - sinceMs <= this.#timeoutMs) return serve();
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
