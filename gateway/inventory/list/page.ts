/** A page of the list: the entries that follow a petId, as bodies that are ready to be sent. */
import { type Chunk, indexFrom, isRemoved } from "./chunk.ts";
import { chunkIndexOf } from "./chunks.ts";
import { type DeflatedBlock, deflateBlock, joinGzip } from "./gzip.ts";
import {
  type Body,
  closeBracketBlock,
  closeBracketBytes,
  deflatedJson,
  openBracketBlock,
  openBracketBytes,
  type Snapshot,
  sharedBodyOf,
} from "./snapshot.ts";

/** Which entries a page has. */
export interface PageRange {
  /** The page begins after this petId, which may be smaller than all. */
  readonly after: bigint;
  /** Maximum entries, at least 1. */
  readonly limit: number;
}

export interface ListPage {
  /** The JSON array, made of views of the list's own bytes: a thousand pages cost hardly more than the list. */
  readonly plain: () => Body;
  /** The JSON array as gzip. A chunk that lies whole within a page, and not at its start, is deflated once for all. */
  readonly gzip: () => Promise<Body>;
  /** The petId after which the next page begins; undefined when no entry follows. */
  readonly nextAfter: bigint | undefined;
}

/** The entries of a chunk from an index to before another one. */
interface Slice {
  readonly chunk: Chunk;
  readonly from: number;
  readonly to: number;
}

/**
 * Cuts a page out of the list, at a cost that follows the page. Chunks that lie whole within it are taken without a
 * look at their entries.
 */
export function pageOf({ chunks }: Snapshot, { after, limit }: PageRange): ListPage {
  const slices: Slice[] = [];
  const page = (nextAfter?: bigint): ListPage => ({
    plain: () => plainOf(slices),
    gzip: () => gzipOf(slices),
    nextAfter,
  });
  let left = limit;
  for (let i = chunkIndexOf(chunks, after); i < chunks.length; i++) {
    const chunk = chunks[i]!;
    const { length } = chunk.petIds;
    const from = indexFrom(chunk.petIds, after + 1n);
    let to = from;
    if (from === 0 && chunk.liveCount <= left) {
      left -= chunk.liveCount;
      to = length;
    }
    for (; to < length; to++) {
      if (isRemoved(chunk, to)) continue;
      if (left === 0) break;
      left -= 1;
    }
    if (chunk.offsets[from] !== chunk.offsets[to]) slices.push({ chunk, from, to });
    if (to < length) return page(lastOf(slices.at(-1)!));
  }
  return page();
}

/** The petId of the last entry of a slice that is not removed; there is one. */
function lastOf({ chunk, to }: Slice): bigint {
  let last = to - 1;
  while (isRemoved(chunk, last)) last -= 1;
  return chunk.petIds[last]!;
}

/** The bytes of the slices without the first comma, in whose place the opening bracket stands. */
function viewsOf(slices: readonly Slice[]): Buffer[] {
  return slices.map(({ chunk: { json, offsets }, from, to }, i) => {
    return json.subarray(offsets[from]! + (i === 0 ? 1 : 0), offsets[to]);
  });
}

function plainOf(slices: readonly Slice[]): Body {
  return sharedBodyOf([openBracketBytes, ...viewsOf(slices), closeBracketBytes]);
}

async function gzipOf(slices: readonly Slice[]): Promise<Body> {
  const views = viewsOf(slices);
  const isWhole = (i: number) => views[i]!.length === slices[i]!.chunk.json.length;
  const blocks: DeflatedBlock[] = [];
  for (const [i, view] of views.entries()) {
    blocks.push(await (isWhole(i) ? deflatedJson(slices[i]!.chunk) : deflateBlock(view)));
  }
  return sharedBodyOf(joinGzip([openBracketBlock, ...blocks, closeBracketBlock]));
}
