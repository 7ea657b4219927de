/** A page of the list: the entries that follow a petId, as a list of their own. */
import { type Chunk, isRemoved, lowerBound, sliceChunk } from "./chunk.ts";
import { chunkOf } from "./chunks.ts";
import { Snapshot } from "./snapshot.ts";

/** Which entries a page has. */
export interface PageRange {
  /** The page begins after this petId, which may be smaller than all. */
  readonly after: bigint;
  /** Maximum entries, at least 1. */
  readonly limit: number;
}

export interface SnapshotPage {
  /** The page as a snapshot at the list's revision, and so with its ETags. It shares chunks with the list. */
  readonly entries: Snapshot;
  /** The petId of its last entry; undefined when no entry follows. */
  readonly last: bigint | undefined;
}

/** Cuts a page out of the list, at a cost that follows the page. */
export function pageOf({ epoch, revision, chunks }: Snapshot, { after, limit }: PageRange): SnapshotPage {
  const parts: Chunk[] = [];
  const page = (last?: bigint) => ({ entries: new Snapshot(epoch, revision, parts), last });
  let [left, last] = [limit, after];
  for (let i = chunkOf(chunks, after); i < chunks.length; i++) {
    const chunk = chunks[i]!;
    const from = lowerBound(chunk.petIds, after + 1n);
    const leftBefore = left;
    for (let at = from; at < chunk.petIds.length; at++) {
      if (isRemoved(chunk, at)) continue;
      if (left === 0) {
        parts.push(sliceChunk(chunk, from, at));
        return page(last);
      }
      left -= 1;
      last = chunk.petIds[at]!;
    }
    if (left === leftBefore) continue;
    // The first chunk is always a copy. Otherwise the list would keep its own and the form with the bracket.
    parts.push(parts.length > 0 ? chunk : sliceChunk(chunk, from, chunk.petIds.length));
  }
  return page();
}
