/** What the list needs of the inventory service. */
import type { Page, StockChanges } from "../../../client/index.ts";
import type { Position } from "../../../proto/pet.ts";

/** Where the list comes from. */
export interface StockSource {
  /**
   * Every entry in the order of petId, with the removed ones that are not forgotten. All are read at or after the
   * position, which comes with each part. The first part may be empty.
   *
   * @param after the petId after which to begin; undefined for the whole list
   */
  load(after: bigint | undefined): AsyncIterable<Page>;
  /** Everything that was committed before the call and after the position. */
  changesAfter(position: Position, report: CheckProgress): Promise<StockChanges>;
}

/** How a check reports to the reads that wait. */
export interface CheckProgress {
  /** A part of the answer has come, and more will. */
  progress(): void;
  /** The check is tried again after this error. */
  setback(error: unknown): void;
}
