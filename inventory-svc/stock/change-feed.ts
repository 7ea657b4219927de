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

/** A page that is being read, or waits for that, and how many watches wait for it. */
interface Pending<Page> {
  readonly page: Promise<Page>;
  watches: number;
}

/**
 * Reads what changes for all watches of this process. They look at the same moments, and one page serves all that stand
 * at the same position, as those do that have caught up. Pages are read one at a time: however many watches there are,
 * they take one connection to the database, and leave the others to writers.
 */
export class ChangeFeed<Page extends Changes> {
  readonly #read: (from: Position) => Promise<Page>;
  /** Pages that are being read, or wait for that, by the position that they follow. */
  readonly #pages = new Map<string, Pending<Page>>();
  #lastPage: Promise<unknown> = Promise.resolve();
  #nextLook: Promise<void> | undefined;
  #watches = 0;

  /** @param read what follows a position, in pages; each is read once for all who get it */
  constructor(read: (from: Position) => Promise<Page>) {
    this.#read = read;
  }

  /**
   * What changes after a position, until `stopped`, or behind a reset. The first page comes at once, also when nothing
   * has changed; later ones only with changes.
   *
   * @throws TooManyWatchesError, or what the reading throws
   */
  async *follow(from: Position, stopped: AbortSignal): AsyncGenerator<Page> {
    if (this.#watches >= maxWatches) throw new TooManyWatchesError();
    this.#watches += 1;
    try {
      let position = from;
      for (let isFirst = true; !stopped.aborted; isFirst = false) {
        const page = await this.#pageAfter(position, stopped);
        if (page === undefined) return;
        if (page.kind === "reset") return yield page;
        if (isFirst || page.rows.length > 0) yield page;
        ({ position } = page);
        if (!page.more) await this.#look();
      }
    } finally {
      this.#watches -= 1;
    }
  }

  /** @returns undefined when it was stopped before */
  async #pageAfter(position: Position, stopped: AbortSignal): Promise<Page | undefined> {
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

  #queue(key: string, position: Position): Pending<Page> {
    const page = this.#lastPage.then(async () => {
      try {
        if (pending.watches === 0) throw new Error("nobody waits for this page any more");
        return await this.#read(position);
      } finally {
        this.#pages.delete(key);
      }
    });
    const pending = { page, watches: 0 };
    this.#pages.set(key, pending);
    this.#lastPage = page.catch(() => {}); // its watches are told
    return pending;
  }

  /** Resolves when it is time to look again, for all watches together. */
  #look(): Promise<void> {
    this.#nextLook ??= setTimeout(intervalMs).then(() => {
      this.#nextLook = undefined;
    });
    return this.#nextLook;
  }
}
