/** Feeds all watches of this process from one look at the database. */
import { setTimeout } from "node:timers/promises";
import type { Position } from "../../proto/pet.ts";
import { TooManyAtOnceError } from "./stock-errors.ts";
import type { ChangesPage } from "./stock-store.ts";

/** How often watches look for changes. All services make changes, and only the database has all of these. */
const intervalMs = 100;

/** Maximum watches of one process. */
export const maxWatches = 1_000;

/** A page that is being read, or is queued to be read. */
interface Pending {
  readonly page: Promise<ChangesPage>;
  /** How many watches wait for it. */
  watches: number;
}

/**
 * Reads changes for all watches of this process, with one poll per interval. Watches at the same position share a page,
 * and all that have caught up are at the same position. Pages are read one at a time, so any number of watches takes
 * one connection to the database, and leaves the others to writers.
 */
export class ChangeFeed {
  readonly #read: (from: Position) => Promise<ChangesPage>;
  /** The pending pages by the position that they follow. */
  readonly #pages = new Map<string, Pending>();
  #lastPage: Promise<unknown> = Promise.resolve();
  #poll: Promise<void> | undefined;
  #watches = 0;

  /** @param read reads the page after a position; each page is read once for all watches that get it */
  constructor(read: (from: Position) => Promise<ChangesPage>) {
    this.#read = read;
  }

  /**
   * Follows the stock from a position until `stopped`, or up to a reset. The first page comes at once, even when
   * nothing has changed; later pages have changes.
   *
   * @throws TooManyAtOnceError, or what `read` throws
   */
  async *follow(from: Position, stopped: AbortSignal): AsyncGenerator<ChangesPage> {
    if (this.#watches >= maxWatches) throw new TooManyAtOnceError("watches");
    this.#watches += 1;
    try {
      let position = from;
      for (let isFirst = true; !stopped.aborted; isFirst = false) {
        const page = await this.#pageAfter(position, stopped);
        if (page === undefined) return;
        if (page.kind === "reset") return yield page;
        if (isFirst || page.rows.length > 0) yield page;
        ({ position } = page);
        if (!page.more) await this.#nextPoll();
      }
    } finally {
      this.#watches -= 1;
    }
  }

  /** @returns undefined when the watch is stopped first */
  async #pageAfter(position: Position, stopped: AbortSignal): Promise<ChangesPage | undefined> {
    const key = `${position.revision} ${position.epoch}`;
    const pending = this.#pages.get(key) ?? this.#queue(key, position);
    const left = Promise.withResolvers<undefined>();
    const leave = () => left.resolve(undefined);
    stopped.addEventListener("abort", leave);
    pending.watches += 1;
    try {
      return await Promise.race([pending.page, left.promise]);
    } finally {
      pending.watches -= 1;
      stopped.removeEventListener("abort", leave);
    }
  }

  #queue(key: string, position: Position): Pending {
    const page = this.#lastPage.then(async () => {
      try {
        if (pending.watches === 0) throw new Error("no watch waits for this page any more");
        return await this.#read(position);
      } finally {
        this.#pages.delete(key);
      }
    });
    const pending = { page, watches: 0 };
    this.#pages.set(key, pending);
    this.#lastPage = page.catch(() => {}); // its watches get the error
    return pending;
  }

  /** Resolves at the next poll, for all watches together. */
  #nextPoll(): Promise<void> {
    this.#poll ??= setTimeout(intervalMs).then(() => {
      this.#poll = undefined;
    });
    return this.#poll;
  }
}
