/** Joins deflated blocks to one gzip stream, so that a change of the list deflates only the block it is in. */
import { promisify } from "node:util";
import { constants, crc32, deflateRaw } from "node:zlib";
import { joinBytes } from "./chunk.ts";

const deflate = promisify(deflateRaw);

/** A part of a gzip stream that refers to nothing before it, so it can follow any other. */
export interface DeflatedBlock {
  readonly bytes: Buffer;
  /** CRC-32 and length of the content. */
  readonly contentCrc: number;
  readonly contentLength: number;
}

/** A higher level than the fastest makes a list clearly smaller for little more work. */
const level = 6;

/**
 * At most four deflations at once: Node's pool has four threads by default, and zlib takes 256 KiB for each block from
 * the call on.
 */
const lanes: Promise<unknown>[] = Array.from({ length: 4 }, () => Promise.resolve());
let calls = 0;

/** Deflates bytes into blocks that end on a byte boundary and do not close the stream (RFC 1951, a full flush). */
export async function deflateBlock(bytes: Uint8Array): Promise<DeflatedBlock> {
  const lane = calls++ % lanes.length;
  const before = lanes[lane]!;
  const deflating = before.then(() => deflate(bytes, { level, finishFlush: constants.Z_FULL_FLUSH }));
  lanes[lane] = deflating.catch(() => {}); // an error is its caller's
  const deflated = await deflating;
  return { bytes: joinBytes([deflated]), contentCrc: crc32(bytes), contentLength: bytes.length };
}

/** Makes a stored block of a few bytes that are not worth deflating. */
export function storedBlock(text: string): DeflatedBlock {
  const content = Buffer.from(text, "latin1");
  const head = Buffer.alloc(5);
  head.writeUInt16LE(content.length, 1);
  head.writeUInt16LE(0xffff ^ content.length, 3);
  return { bytes: Buffer.concat([head, content]), contentCrc: crc32(content), contentLength: content.length };
}

/** RFC 1952: magic number, deflate, no flags, no time, no extra flags, Unix. */
const gzipHeader = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);

/** An empty block with fixed codes, marked as the last. */
const finalBlock = Buffer.from([3, 0]);

/** Joins blocks to one block. */
export function joinBlocks(blocks: readonly DeflatedBlock[]): DeflatedBlock {
  return { bytes: joinBytes(blocks.map(({ bytes }) => bytes)), ...contentOf(blocks) };
}

/**
 * Joins blocks to one gzip stream with one header and one checksum. A stream of several members would be valid too
 * (RFC 1952 section 2.2), but curl and Chromium read only the first member.
 */
export function joinGzip(blocks: readonly DeflatedBlock[]): Buffer[] {
  const { contentCrc, contentLength } = contentOf(blocks);
  const trailer = Buffer.alloc(8);
  trailer.writeUInt32LE(contentCrc, 0);
  trailer.writeUInt32LE(contentLength >>> 0, 4);
  return [gzipHeader, ...blocks.map(({ bytes }) => bytes), joinBytes([finalBlock, trailer])];
}

/** CRC-32 and length of the content of all blocks. */
function contentOf(blocks: readonly DeflatedBlock[]): Pick<DeflatedBlock, "contentCrc" | "contentLength"> {
  let contentCrc = 0;
  let contentLength = 0;
  for (const block of blocks) {
    contentCrc = combineCrc32(contentCrc, block.contentCrc, block.contentLength);
    contentLength += block.contentLength;
  }
  return { contentCrc, contentLength };
}

/** The CRC-32 polynomial in the bit order of gzip. */
const polynomial = 0xedb88320;

/** a·b modulo the polynomial; the highest bit stands for x^0. */
function multiply(a: number, b: number): number {
  let product = 0;
  let term = b;
  for (let mask = 0x80000000; mask !== 0; mask >>>= 1) {
    if (a & mask) product ^= term;
    term = term & 1 ? (term >>> 1) ^ polynomial : term >>> 1;
  }
  return product >>> 0;
}

/** x^(8·2^n) for n from 0 to 31: what 2^n bytes do to the checksum before them. */
const powers: number[] = [0x00800000];
for (let n = 1; n < 32; n++) powers.push(multiply(powers[n - 1]!, powers[n - 1]!));

/** The CRC-32 of two texts in sequence, from the CRC-32 of each and the length of the second in bytes. */
export function combineCrc32(first: number, second: number, secondLength: number): number {
  let shift = 0x80000000; // x^0
  for (let n = 0, rest = secondLength; rest > 0; n++, rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) shift = multiply(powers[n]!, shift);
  }
  return (multiply(shift, first) ^ second) >>> 0;
}
