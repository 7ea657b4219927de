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
  /** The page at the revision, and so with the ETags, of the list. It shares chunks with it. */
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
    if (chunk.entries === 0) continue;
    const from = lowerBound(chunk.petIds, after + 1n);
    for (let at = from; at < chunk.petIds.length; at++) {
      if (isRemoved(chunk, at)) continue;
      if (left === 0) {
        parts.push(sliceChunk(chunk, from, at));
        return page(last);
      }
      left -= 1;
      last = chunk.petIds[at]!;
    }
    // Its first chunk is always a copy, or the form with the bracket would be kept beside the chunk of the list.
    parts.push(parts.length > 0 ? chunk : sliceChunk(chunk, from, chunk.petIds.length));
  }
  return page();
}
