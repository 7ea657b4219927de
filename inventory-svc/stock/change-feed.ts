import { setTimeout } from "node:timers/promises";
import type { Changes, Position } from "./store.ts";

/** How often watches look for news. Changes come from all replicas, and only the database knows of all. */
const intervalMs = 100;

/** Watches at the most. */
export const maxWatches = 1_000;

/** As many watches are open as there may be. */
export class TooManyWatchesError extends Error {
  constructor() {
    super("too many watches are open");
    this.name = "TooManyWatchesError";
  }
}

/**
 * Reads what changes for all watches of this process. They look at the same moments, and one page serves all that stand
 * at the same position, as those do that have caught up. Pages are read one at a time: however many watches there are,
 * they take one connection to the database, and leave the others to writers.
 */
export class ChangeFeed {
  readonly #read: (from: Position) => Promise<Changes>;
  /** Pages that are being read, or wait for that, by the position that they follow. */
  readonly #pages = new Map<string, Promise<Changes>>();
  #lastPage: Promise<unknown> = Promise.resolve();
  #nextLook: Promise<void> | undefined;
  #watches = 0;

  /** @param read what follows a position, in pages */
  constructor(read: (from: Position) => Promise<Changes>) {
    this.#read = read;
  }

  /**
   * What changes after a position, until `stopped`, or behind a reset. The first page comes at once, also when nothing
   * has changed; later ones only with changes.
   *
   * @throws TooManyWatchesError, or what the reading throws
   */
  async *follow(from: Position, stopped: AbortSignal): AsyncGenerator<Changes> {
    if (this.#watches >= maxWatches) throw new TooManyWatchesError();
    this.#watches += 1;
    try {
      let position = from;
      for (let isFirst = true; !stopped.aborted; isFirst = false) {
        const page = await this.#pageAfter(position);
        if (page.kind === "reset") return yield page;
        if (isFirst || page.rows.length > 0) yield page;
        ({ position } = page);
        if (!page.more) await this.#look();
      }
    } finally {
      this.#watches -= 1;
    }
  }

  #pageAfter(position: Position): Promise<Changes> {
    const key = `${position.revision} ${position.epoch}`;
    const same = this.#pages.get(key);
    if (same) return same;
    const page = this.#lastPage.then(() => this.#read(position)).finally(() => this.#pages.delete(key));
    this.#pages.set(key, page);
    this.#lastPage = page.catch(() => {}); // its watches are told
    return page;
  }

  /** Resolves when it is time to look again, for all watches together. */
  #look(): Promise<void> {
    this.#nextLook ??= setTimeout(intervalMs).then(() => {
      this.#nextLook = undefined;
    });
    return this.#nextLook;
  }
}
