/** Gives work turns, one at a time. */
import { Batches } from "../../../runtime/batches.ts";

interface Waiting {
  readonly sinceMs: number;
  readonly begin: () => Promise<void>;
  readonly reject: (error: unknown) => void;
}

/** Does one piece of work after the other. What has waited for too long is not begun. */
export class Turns {
  readonly #queue: Batches<Waiting>;

  /** @param late makes the error of work that has waited for longer than `timeoutMs` */
  constructor(timeoutMs: number, late: () => unknown) {
    this.#queue = new Batches(async (take) => {
      for (const { sinceMs, begin, reject } of take(1)) {
        if (performance.now() - sinceMs > timeoutMs) reject(late());
        else await begin();
      }
    });
  }

  /** @throws what the work throws, or the error of late work */
  run<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#queue.add({ sinceMs: performance.now(), begin: () => work().then(resolve, reject), reject });
    });
  }
}
