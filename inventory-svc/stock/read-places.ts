/** Bounds reads of the database. */
import { inTime } from "../../runtime/event-loop.ts";
import { StockUnavailableError, TooManyAtOnceError } from "./stock-errors.ts";

export interface ReadPlacesOptions {
  /** Maximum reads at once. */
  readonly maxRunning: number;
  /** Maximum reads that wait; by default any number. */
  readonly maxWaiting?: number;
  /** The longest wait for a place; by default as long as for a connection to the database. */
  readonly maxWaitMs?: number;
}

/**
 * Lets few reads of a kind run at once. Reads of entries, of changes and of histories leave two of the default pool's
 * ten connections to the rest: writes, reads of the head and of the list.
 */
export class ReadPlaces {
  readonly #maxRunning: number;
  readonly #maxWaiting: number;
  readonly #maxWaitMs: number;
  #running = 0;
  /** Functions that begin a waiting read, in the order of arrival. */
  readonly #waiting = new Set<() => void>();

  constructor({ maxRunning, maxWaiting = Number.POSITIVE_INFINITY, maxWaitMs = 2_000 }: ReadPlacesOptions) {
    this.#maxRunning = maxRunning;
    this.#maxWaiting = maxWaiting;
    this.#maxWaitMs = maxWaitMs;
  }

  /**
   * Reads once there is a place.
   *
   * @throws TooManyAtOnceError when too many wait, StockUnavailableError when none is free in time; what
   *   `read` throws
   */
  async take<T>(read: () => Promise<T>): Promise<T> {
    if (this.#running < this.#maxRunning) this.#running += 1;
    else if (this.#waiting.size < this.#maxWaiting) await this.#wait();
    else throw new TooManyAtOnceError("reads");
    try {
      return await read();
    } finally {
      const [next] = this.#waiting;
      if (next) next();
      else this.#running -= 1;
    }
  }

  async #wait(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const begin = () => {
      this.#waiting.delete(begin);
      resolve();
    };
    this.#waiting.add(begin);
    await inTime(promise, this.#maxWaitMs, () => {
      this.#waiting.delete(begin); // at once: no place may go to a read that has been given up
      return new StockUnavailableError(new Error(`no place within ${this.#maxWaitMs} ms`));
    });
  }
}
