/** Does work for many callers, one batch at a time. */
import { context, ROOT_CONTEXT } from "@opentelemetry/api";

/** Takes the items that wait, the oldest first: at most `count` of them, or all. */
export type Take<Item> = (count?: number) => Item[];

/**
 * Works on the items that wait, as one batch. Items that arrive while a batch is under way wait for the next one: the
 * busier it is, the larger the batches, and the less each item costs.
 */
export class Batches<Item> {
  readonly #work: (take: Take<Item>) => Promise<void>;
  readonly #gather: () => Promise<unknown>;
  readonly #waiting: Item[] = [];
  #running: Promise<void> | undefined;

  /**
   * @param work takes items and settles them. It is called again as long as items wait, and must not throw
   * @param gather is awaited before the first batch after an idle time, so that items which arrive together share it;
   *   by default it waits until the code that adds the first item has ended
   */
  constructor(work: (take: Take<Item>) => Promise<void>, gather: () => Promise<unknown> = () => Promise.resolve()) {
    this.#work = work;
    this.#gather = gather;
  }

  /** The items that wait for their batch, the oldest first. */
  get waiting(): readonly Item[] {
    return this.#waiting;
  }

  add(item: Item): void {
    this.#waiting.push(item);
    // It outlives the caller whose item begins it, so its work is not part of that caller's trace.
    this.#running ??= context.with(ROOT_CONTEXT, () => this.#run());
  }

  /** Resolves when nothing waits and no batch is under way. */
  async idle(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    try {
      await this.#gather();
      while (this.#waiting.length > 0) {
        await this.#work((count = this.#waiting.length) => this.#waiting.splice(0, count));
      }
    } finally {
      this.#running = undefined;
    }
  }
}
