/** Joins chunks of the list to larger pieces, because a response pays for each piece that it writes. */

import type { Chunk } from "./chunk.ts";
import { joinBytes } from "./chunk.ts";
import { type DeflatedBlock, deflateBlock, joinBlocks } from "./gzip.ts";

/** More chunks in a segment make responses cheaper, and changes dearer: a change joins its whole segment again. */
const chunksPerSegment = 8;

// Deflated blocks by their JSON. They outlive segments, so JSON that does not change is deflated once.
const deflated = new WeakMap<Buffer, Promise<DeflatedBlock>>();

/** Neighbouring chunks that can be sent as one piece. A segment never changes; its pieces are made on demand. */
export class Segment {
  readonly chunks: readonly Chunk[];
  /** Of the JSON, in bytes. */
  readonly length: number;
  #plain: Buffer | undefined;
  #deflated: Promise<DeflatedBlock> | undefined;

  constructor(chunks: readonly Chunk[]) {
    this.chunks = chunks;
    this.length = chunks.reduce((sum, { json }) => sum + json.length, 0);
  }

  /** The JSON in one piece, as a copy. */
  plain(): Buffer {
    this.#plain ??= joinBytes(this.chunks.map(({ json }) => json));
    return this.#plain;
  }

  deflated(): Promise<DeflatedBlock> {
    this.#deflated ??= Promise.all(this.chunks.map(deflatedJson)).then(joinBlocks);
    return this.#deflated;
  }
}

/**
 * Divides a list into segments.
 *
 * @param previous segments of an earlier state of the list; those with the same JSON are used again
 */
export function segmentsOf(chunks: readonly Chunk[], previous: readonly Segment[]): Segment[] {
  const segments: Segment[] = [];
  for (let from = 0; from < chunks.length; from += chunksPerSegment) {
    const to = Math.min(from + chunksPerSegment, chunks.length);
    const before = previous[segments.length];
    const isSame =
      before?.chunks.length === to - from && before.chunks.every(({ json }, i) => json === chunks[from + i]!.json);
    segments.push(isSame ? before : new Segment(chunks.slice(from, to)));
  }
  return segments;
}

function deflatedJson({ json }: Chunk): Promise<DeflatedBlock> {
  let block = deflated.get(json);
  if (!block) {
    block = deflateBlock(json);
    deflated.set(json, block);
  }
  return block;
}
