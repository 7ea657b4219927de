import { joinBytes } from "./bytes.ts";
import type { Chunk } from "./chunk.ts";
import { joinGzip, storedBlock } from "./gzip.ts";
import { type Segment, segmentsOf } from "./segment.ts";

/** A body that is ready to be sent: the pieces in order, and their length in all. */
export interface Body {
  readonly pieces: readonly Buffer[];
  readonly length: number;
  /** A small body as text of one byte a character: Node sends it in one write with the head. */
  readonly text: string | undefined;
}

/**
 * Above this a list is sent chunk by chunk: joined segments would double what it takes, and slow readers would keep a
 * whole segment alive for each entry that changes. Bytes.
 */
const segmentsBelow = 8 * 1024 * 1024;

/** Below this a body is kept as one Buffer: one write costs so much less than several that the copy pays. Bytes. */
const coalesceBelow = 512 * 1024;

/** Below this the text is kept too: joining it to the head costs less than a second piece to write. Bytes. */
const textBelow = 8 * 1024;

const empty = Buffer.from("[");
const end = Buffer.from("]");
const emptyBlock = storedBlock("[");
const endBlock = storedBlock("]");

/** The whole list at one revision. It never changes. */
export class Snapshot {
  readonly epoch: string;
  readonly revision: bigint;
  readonly chunks: readonly Chunk[];
  /** Strong ETag of the plain body. */
  readonly etag: string;
  /** Strong ETag of the gzip body: another representation, so another one (RFC 9110 section 8.8.3). */
  readonly gzipEtag: string;
  readonly #segments: readonly Segment[];
  #plain: Body | undefined;
  #gzip: Promise<Body> | undefined;

  /** @param previous an earlier state of the same list: what did not change since is not made anew */
  constructor(epoch: string, revision: bigint, chunks: readonly Chunk[], previous?: Snapshot) {
    this.epoch = epoch;
    this.revision = revision;
    this.chunks = chunks;
    this.#segments = segmentsOf(opened(chunks), previous ? previous.#segments : []);
    const tag = `${epoch.slice(0, 8)}-${revision}`;
    this.etag = `"${tag}"`;
    this.gzipEtag = `"${tag}-gzip"`;
  }

  /** The JSON array. */
  plain(): Body {
    this.#plain ??= body([...this.#pieces(), end]);
    return this.#plain;
  }

  /** The JSON array as gzip. */
  gzip(): Promise<Body> {
    this.#gzip ??= Promise.all(this.#segments.map((segment) => segment.deflated())).then((blocks) =>
      body(joinGzip([...(blocks.length === 0 ? [emptyBlock] : blocks), endBlock])),
    );
    return this.#gzip;
  }

  #pieces(): readonly Buffer[] {
    if (this.chunks.length === 0) return [empty];
    const length = this.#segments.reduce((sum, segment) => sum + segment.length, 0);
    if (length < segmentsBelow) return this.#segments.map((segment) => segment.plain());
    return this.#segments.flatMap(({ chunks }) => chunks.map(({ json }) => json));
  }
}

const withBracket = new WeakMap<Chunk, Chunk>();

/** The chunks with the bracket that opens the array in the place of the first comma. */
function opened(chunks: readonly Chunk[]): readonly Chunk[] {
  const [first, ...rest] = chunks;
  if (!first) return chunks;
  let chunk = withBracket.get(first);
  if (!chunk) {
    const json = joinBytes([first.json]);
    json.write("[");
    chunk = { ...first, json };
    withBracket.set(first, chunk);
  }
  return [chunk, ...rest];
}

function body(pieces: readonly Buffer[]): Body {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (length >= coalesceBelow) return { pieces, length, text: undefined };
  const whole = joinBytes(pieces);
  return { pieces: [whole], length, text: length < textBelow ? whole.toString("latin1") : undefined };
}
