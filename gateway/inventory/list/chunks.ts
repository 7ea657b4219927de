/** The list as chunks in the order of petId. */
import type { ListedItem } from "../../../proto/pet.ts";
import { type Chunk, editChunk, indexFrom, isRemoved, jsonAt, makeChunk, sliceChunk } from "./chunk.ts";
import { lowerBound } from "./lower-bound.ts";

/** Entries in a chunk. One changed entry costs the copy of its chunk; each chunk of a large list costs a write. */
export const chunkSize = 256;
const maxChunkSize = 2 * chunkSize;

/** An entry as it is answered alone. */
export interface RenderedEntry {
  /** Its JSON. */
  readonly json: string;
  /** The revision that last changed it. */
  readonly revision: bigint;
}

/** Finds an entry; its cost hardly grows with the list. @returns undefined when there is none */
export function findEntry(chunks: readonly Chunk[], petId: bigint): RenderedEntry | undefined {
  const chunk = chunks[chunkIndexOf(chunks, petId)];
  if (chunk === undefined) return undefined;
  const at = indexFrom(chunk.petIds, petId);
  if (chunk.petIds[at] !== petId || isRemoved(chunk, at)) return undefined;
  return { json: jsonAt(chunk, at), revision: chunk.revisions[at]! };
}

/**
 * Merges edits into the chunks. Those without an edit stay the same objects.
 *
 * @param edits the new states of entries, in the order of petId, at most one for each
 */
export function editChunks(chunks: readonly Chunk[], edits: readonly ListedItem[]): Chunk[] {
  if (chunks.length === 0) return split(makeChunk(edits));
  const edited = [...chunks];
  // From the last to the first, so that a change in the number of chunks moves none that is still to be edited.
  for (let end = edits.length; end > 0; ) {
    const place = chunkIndexOf(chunks, edits[end - 1]!.petId);
    let begin = end - 1;
    while (begin > 0 && (place === 0 || edits[begin - 1]!.petId >= chunks[place]!.petIds[0]!)) begin--;
    edited.splice(place, 1, ...split(editChunk(chunks[place]!, edits.slice(begin, end))));
    end = begin;
  }
  return edited;
}

/** The index of the chunk that an entry belongs to: the last one that does not begin after it, else the first. */
export function chunkIndexOf(chunks: readonly Chunk[], petId: bigint): number {
  return lowerBound(1, chunks.length, (index) => chunks[index]!.petIds[0]! <= petId) - 1;
}

/** Gives no chunk for an empty one, and several for one that has grown too large. */
function split(chunk: Chunk): Chunk[] {
  const count = chunk.petIds.length;
  if (count === 0) return [];
  if (count <= maxChunkSize) return [chunk];
  const parts: Chunk[] = [];
  for (let from = 0; from < count; from += chunkSize) {
    parts.push(sliceChunk(chunk, from, Math.min(from + chunkSize, count)));
  }
  return parts;
}

/** Counts the entries that are not removed. */
export function countEntries(chunks: readonly Chunk[]): number {
  return chunks.reduce((count, { liveCount }) => count + liveCount, 0);
}
