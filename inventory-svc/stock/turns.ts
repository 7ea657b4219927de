/** Bounds reads of the database. */
import { StockUnavailableError, TooManyAtOnceError } from "./stock-errors.ts";

/** The longest wait for a turn: as long as for a connection to the database. */
const maxWaitMs = 2_000;

/** Lets few reads of a kind run at once, so that writes and reads of the head find a connection to the database. */
export class Turns {
  readonly #kind: string;
  readonly #maxRunning: number;
  readonly #maxWaiting: number;
  #running = 0;
  /** Functions that begin a turn, in the order of arrival. */
  readonly #waiting = new Set<() => void>();

  constructor(kind: string, maxRunning: number, maxWaiting: number) {
    this.#kind = kind;
    this.#maxRunning = maxRunning;
    this.#maxWaiting = maxWaiting;
  }

  /**
   * Reads when it is its turn.
   *
   * @throws TooManyAtOnceError when too many wait, StockUnavailableError when its turn does not come in time; what
   *   `read` throws
   */
  async take<T>(read: () => Promise<T>): Promise<T> {
    if (this.#running < this.#maxRunning) this.#running += 1;
    else if (this.#waiting.size < this.#maxWaiting) await this.#wait();
    else throw new TooManyAtOnceError(this.#kind);
    try {
      return await read();
    } finally {
      const [next] = this.#waiting;
      if (next) next();
      else this.#running -= 1;
    }
  }

  #wait(): Promise<void> {
    return new Promise((resolve, reject) => {
      const begin = () => {
        clearTimeout(timer);
        this.#waiting.delete(begin);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(begin);
        reject(new StockUnavailableError(new Error(`no turn within ${maxWaitMs} ms`)));
      }, maxWaitMs);
      this.#waiting.add(begin);
    });
  }
}
