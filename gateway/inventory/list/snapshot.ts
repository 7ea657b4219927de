/** The whole list at one revision, as bodies that are ready to be sent. */
import { type Chunk, joinBytes } from "./chunk.ts";
import { type DeflatedBlock, deflateBlock, joinBlocks, joinGzip, storedBlock } from "./gzip.ts";

/** A body that is ready to be sent. */
export interface Body {
  /** Its bytes in order; none where it was made as text. */
  readonly pieces: readonly Buffer[];
  /** Bytes in all. */
  readonly length: number;
  /** A small body as text of one byte per character, which Node sends in one write with the head. */
  readonly text: string | undefined;
}

/**
 * Size from which a list is sent chunk by chunk, in bytes. Joined segments would double its memory, and slow readers
 * would keep a whole segment alive for each entry that changes.
 */
const segmentsBelow = 8 * 1024 * 1024;

/** Size up to which a body is kept as one Buffer, in bytes: one write saves more than the copy costs. */
const coalesceBelow = 512 * 1024;

/** Size up to which the text is kept too, in bytes: joining it to the head costs less than a second write. */
const textBelow = 8 * 1024;

export const openBracketBytes = joinBytes([Buffer.from("[")]);
export const closeBracketBytes = joinBytes([Buffer.from("]")]);
export const openBracketBlock = storedBlock("[");
export const closeBracketBlock = storedBlock("]");

/** A snapshot never changes. */
export class Snapshot {
  readonly epoch: string;
  readonly revision: bigint;
  readonly chunks: readonly Chunk[];
  /** Strong ETag of the plain body. */
  readonly etag: string;
  /** Strong ETag of the gzip body, which is another representation (RFC 9110 section 8.8.3). */
  readonly gzipEtag: string;
  readonly #segments: readonly Segment[];
  #plain: Body | undefined;
  #gzip: Body | undefined;

  /** @param previous an earlier state of the same list; what did not change since is used again */
  constructor(epoch: string, revision: bigint, chunks: readonly Chunk[], previous?: Snapshot) {
    this.epoch = epoch;
    this.revision = revision;
    this.chunks = chunks;
    const sent = chunks.filter(({ liveCount }) => liveCount > 0);
    this.#segments = segmentsOf(openBracket(sent), previous ? previous.#segments : []);
    const tag = `${epochTagOf(epoch)}-${revision}`;
    this.etag = `"${tag}"`;
    this.gzipEtag = `"${tag}-gzip"`;
  }

  /** The JSON array. */
  plain(): Body {
    this.#plain ??= bodyOf([...this.#pieces(), closeBracketBytes]);
    return this.#plain;
  }

  /** The JSON array as gzip; undefined until `deflate` has made it. */
  get gzip(): Body | undefined {
    return this.#gzip;
  }

  /** Makes `gzip`. @param onPart called after each part of the work */
  async deflate(onPart: () => void): Promise<Body> {
    const blocks: DeflatedBlock[] = [];
    // One segment after the other, so that `onPart` tells of the progress of the work.
    for (const segment of this.#segments) {
      blocks.push(await segment.deflated());
      onPart();
    }
    this.#gzip = bodyOf(joinGzip([...(blocks.length === 0 ? [openBracketBlock] : blocks), closeBracketBlock]));
    return this.#gzip;
  }

  #pieces(): readonly Buffer[] {
    if (this.#segments.length === 0) return [openBracketBytes];
    const length = this.#segments.reduce((sum, segment) => sum + segment.length, 0);
    if (length < segmentsBelow) return this.#segments.map((segment) => segment.plain());
    return this.#segments.flatMap(({ chunks }) => chunks.map(({ json }) => json));
  }
}

/** The part of an epoch that is in the ETag: enough to tell it from another one. */
export function epochTagOf(epoch: string): string {
  return epoch.slice(0, 8);
}

const withBracket = new WeakMap<Buffer, Buffer>();

/** Replaces the first comma of the chunks by the bracket that opens the array. */
function openBracket(chunks: readonly Chunk[]): readonly Chunk[] {
  const [first, ...rest] = chunks;
  if (!first) return chunks;
  let json = withBracket.get(first.json);
  if (!json) {
    json = joinBytes([first.json]);
    json.write("[");
    withBracket.set(first.json, json);
  }
  return [{ ...first, json }, ...rest];
}

/** Makes a body of text of one byte per character. */
export function bodyOfText(text: string): Body {
  if (text.length < textBelow) return { pieces: [], length: text.length, text };
  return bodyOf([Buffer.from(text, "latin1")]);
}

/** @param joinedBelow size up to which it is joined to one Buffer, in bytes */
export function bodyOf(pieces: readonly Buffer[], joinedBelow = coalesceBelow): Body {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (length >= joinedBelow) return { pieces, length, text: undefined };
  const whole = joinBytes(pieces);
  return { pieces: [whole], length, text: length < textBelow ? whole.toString("latin1") : undefined };
}

/** Makes a body of views of bytes that the list has anyway: unless it is small, none of them is copied. */
export function sharedBodyOf(pieces: readonly Buffer[]): Body {
  return bodyOf(pieces, textBelow);
}

/** More chunks in a segment make responses cheaper, and changes dearer: a change joins its whole segment again. */
const chunksPerSegment = 8;

// Deflated blocks by their JSON. They outlive segments, so JSON that does not change is deflated once.
const deflated = new WeakMap<Buffer, Promise<DeflatedBlock>>();

/** Neighbouring chunks that can be sent as one piece. A segment never changes; its pieces are made on demand. */
class Segment {
  readonly chunks: readonly Chunk[];
  /** Bytes of the JSON. */
  readonly length: number;
  #plain: Buffer | undefined;
  #deflated: DeflatedBlock | undefined;

  constructor(chunks: readonly Chunk[]) {
    this.chunks = chunks;
    this.length = chunks.reduce((sum, { json }) => sum + json.length, 0);
  }

  /** The JSON in one piece, as a copy. */
  plain(): Buffer {
    this.#plain ??= joinBytes(this.chunks.map(({ json }) => json));
    return this.#plain;
  }

  async deflated(): Promise<DeflatedBlock> {
    this.#deflated ??= joinBlocks(await Promise.all(this.chunks.map(deflatedJson)));
    return this.#deflated;
  }
}

/**
 * Divides a list into segments.
 *
 * @param previous segments of an earlier state of the list; those with the same JSON are used again
 */
function segmentsOf(chunks: readonly Chunk[], previous: readonly Segment[]): Segment[] {
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

export function deflatedJson({ json }: Chunk): Promise<DeflatedBlock> {
  let block = deflated.get(json);
  if (!block) {
    block = deflateBlock(json);
    deflated.set(json, block);
    block.catch(() => deflated.delete(json)); // as after a lack of memory: the next reader tries again
  }
  return block;
}
