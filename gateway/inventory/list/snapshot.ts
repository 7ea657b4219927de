import type { Chunk } from "./chunk.ts";
import { type DeflatedBlock, deflateBlock, joinGzip, storedBlock } from "./gzip.ts";

/** A body that is ready to be sent: the pieces in order, and their length in all. */
export interface Body {
  readonly pieces: readonly Buffer[];
  readonly length: number;
  /** A small body as text of one byte a character: Node sends it in one write with the head. */
  readonly text: string | undefined;
}

/** Below this a body is kept as one Buffer: one write costs less than several. Bytes. */
const coalesceBelow = 256 * 1024;

/** Below this the text is kept too: joining it to the head costs less than a second piece to write. Bytes. */
const textBelow = 8 * 1024;

const open = storedBlock("[");
const close = storedBlock("]");

// Outlives snapshots: a chunk that did not change is deflated once. The first of a list stands without its comma.
const deflatedFirst = new WeakMap<Chunk, Promise<DeflatedBlock>>();
const deflatedRest = new WeakMap<Chunk, Promise<DeflatedBlock>>();

/** The whole list at one revision. It never changes. */
export class Snapshot {
  readonly epoch: string;
  readonly revision: bigint;
  readonly chunks: readonly Chunk[];
  /** Strong ETag of the plain body. */
  readonly etag: string;
  /** Strong ETag of the gzip body: another representation, so another one (RFC 9110 section 8.8.3). */
  readonly gzipEtag: string;
  #plain: Body | undefined;
  #gzip: Promise<Body> | undefined;

  constructor(epoch: string, revision: bigint, chunks: readonly Chunk[]) {
    this.epoch = epoch;
    this.revision = revision;
    this.chunks = chunks;
    const tag = `${epoch.slice(0, 8)}-${revision}`;
    this.etag = `"${tag}"`;
    this.gzipEtag = `"${tag}-gzip"`;
  }

  /** The JSON array. */
  plain(): Body {
    this.#plain ??= body([
      Buffer.from("["),
      ...this.chunks.map((chunk, i) => (i === 0 ? chunk.json.subarray(1) : chunk.json)),
      Buffer.from("]"),
    ]);
    return this.#plain;
  }

  /** The JSON array as gzip. */
  gzip(): Promise<Body> {
    this.#gzip ??= Promise.all(this.chunks.map(deflated)).then((blocks) => body(joinGzip([open, ...blocks, close])));
    return this.#gzip;
  }
}

function deflated(chunk: Chunk, position: number): Promise<DeflatedBlock> {
  const cache = position === 0 ? deflatedFirst : deflatedRest;
  let block = cache.get(chunk);
  if (!block) {
    block = deflateBlock(position === 0 ? chunk.json.subarray(1) : chunk.json);
    cache.set(chunk, block);
  }
  return block;
}

function body(pieces: readonly Buffer[]): Body {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (length >= coalesceBelow) return { pieces, length, text: undefined };
  const whole = Buffer.concat(pieces, length);
  return { pieces: [whole], length, text: length < textBelow ? whole.toString("latin1") : undefined };
}
