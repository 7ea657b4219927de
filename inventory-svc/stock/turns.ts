/** Bounds reads of the database. */
import { TooManyAtOnceError } from "./stock-errors.ts";

/** Lets few reads of a kind run at once, so that writes and checks find a connection to the database. */
export class Turns {
  readonly #kind: string;
  readonly #maxRunning: number;
  readonly #maxWaiting: number;
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(kind: string, maxRunning: number, maxWaiting: number) {
    this.#kind = kind;
    this.#maxRunning = maxRunning;
    this.#maxWaiting = maxWaiting;
  }

  /** Reads when it is its turn. @throws TooManyAtOnceError when too many wait; what `read` throws */
  async take<T>(read: () => Promise<T>): Promise<T> {
    if (this.#running < this.#maxRunning) this.#running += 1;
    else if (this.#waiting.length < this.#maxWaiting) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else throw new TooManyAtOnceError(this.#kind);
    try {
      return await read();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running -= 1;
    }
  }
}
