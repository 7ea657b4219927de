/** Loads the list from the inventory service, over as many streams as that takes. */

import type { Page, StockChanges } from "../../../client/index.ts";
import type { ListedItem, Position } from "../../../proto/pet.ts";
import { type Chunk, makeChunk } from "./chunk.ts";
import { chunkSize } from "./chunks.ts";
import { Snapshot } from "./snapshot.ts";

/** Where the list comes from. */
export interface StockSource {
  /**
   * Every entry in the order of petId, with the removed ones that are not forgotten. All are read at or after the
   * position, which comes with each page. The first page may be empty.
   *
   * @param after the petId after which to begin; undefined for the whole list
   */
  load(after: bigint | undefined): AsyncIterable<Page>;
  /** Everything that was committed before the call and after the position, or the first changes of that. */
  changesAfter(position: Position, report: CheckProgress): Promise<StockChanges>;
}

/** How a check reports to the reads that wait. */
export interface CheckProgress {
  /** A part of the answer has come, and more will. */
  progress(): void;
  /** The check is tried again after this error. */
  setback(error: unknown): void;
}

/**
 * A load of the list. After a failure it keeps what it has, and goes on from there. What has changed meanwhile comes
 * with the check that follows a load; so does the news that the stock is in another epoch and has to be loaded again.
 */
export class Load {
  /** The position of the first part: all later ones are read after it. */
  #position: Position | undefined;
  readonly #chunks: Chunk[] = [];
  #items: ListedItem[] = [];
  #last: bigint | undefined;

  /**
   * Reads what it does not have yet. When a stream that has brought something breaks, another one goes on.
   *
   * @param onPart called for each part that arrives
   * @returns the entries, some of which may be newer than the position
   * @throws what the source throws
   */
  async finish(source: Pick<StockSource, "load">, onPart: () => void): Promise<Snapshot> {
    for (;;) {
      const before = this.#last;
      try {
        for await (const { position, items } of source.load(this.#last)) {
          this.#position ??= position;
          for (const item of items) this.#add(item);
          onPart();
        }
        break;
      } catch (error) {
        if (this.#last === before) throw error;
      }
    }
    if (!this.#position) throw new Error("the stock source gave no position");
    const { epoch, revision } = this.#position;
    const rest = this.#items.length > 0 ? [makeChunk(this.#items)] : [];
    return new Snapshot(epoch, revision, [...this.#chunks, ...rest]);
  }

  #add(item: ListedItem): void {
    this.#last = item.petId;
    this.#items.push(item);
    if (this.#items.length < chunkSize) return;
    this.#chunks.push(makeChunk(this.#items));
    this.#items = [];
  }
}
