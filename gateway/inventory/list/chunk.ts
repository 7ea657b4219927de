import { type Item, renderItem } from "../item.ts";

/** An entry that is to be written (with its JSON) or dropped (null). */
export interface Edit {
  readonly petId: bigint;
  readonly json: string | null;
}

/**
 * A run of entries in the order of petId, as JSON that is ready to be sent. It never changes: a response that holds
 * it sends what it held from the start, however slowly.
 */
export interface Chunk {
  readonly petIds: BigInt64Array<ArrayBuffer>;
  /** Where each entry's JSON begins, and behind the last one where it ends. */
  readonly offsets: Uint32Array<ArrayBuffer>;
  /** Each entry with a comma before it. */
  readonly json: Buffer;
}

/** An entry's part of a chunk. */
export function entryJson(item: Omit<Item, "revision">): string {
  return `,${renderItem(item)}`;
}

/** @param edits in the order of petId, none of them null */
export function makeChunk(edits: readonly Edit[]): Chunk {
  const petIds = new BigInt64Array(edits.length);
  const offsets = new Uint32Array(edits.length + 1);
  let text = "";
  edits.forEach(({ petId, json }, i) => {
    petIds[i] = petId;
    text += json;
    offsets[i + 1] = text.length; // the JSON is ASCII: characters are bytes
  });
  return { petIds, offsets, json: Buffer.from(text, "latin1") };
}

/**
 * A chunk with edits made to it: a merge of the two runs. What does not change is copied as bytes, not rendered.
 *
 * @param edits in the order of petId, at most one for each
 */
export function editChunk(chunk: Chunk, edits: readonly Edit[]): Chunk {
  const most = chunk.petIds.length + edits.length;
  const petIds = new BigInt64Array(most);
  const offsets = new Uint32Array(most + 1);
  const parts: Buffer[] = [];
  let length = 0;
  let count = 0;

  const keep = (from: number, to: number) => {
    if (from === to) return;
    petIds.set(chunk.petIds.subarray(from, to), count);
    const shift = length - chunk.offsets[from]!;
    for (let i = from; i < to; i++) offsets[count + i - from] = chunk.offsets[i]! + shift;
    parts.push(chunk.json.subarray(chunk.offsets[from], chunk.offsets[to]));
    length = chunk.offsets[to]! + shift;
    count += to - from;
  };

  let next = 0;
  for (const { petId, json } of edits) {
    const at = lowerBound(chunk.petIds, petId, next);
    keep(next, at);
    next = chunk.petIds[at] === petId ? at + 1 : at;
    if (json === null) continue;
    petIds[count] = petId;
    offsets[count] = length;
    parts.push(Buffer.from(json, "latin1"));
    length += json.length;
    count += 1;
  }
  keep(next, chunk.petIds.length);
  offsets[count] = length;
  return { petIds: petIds.slice(0, count), offsets: offsets.slice(0, count + 1), json: Buffer.concat(parts, length) };
}

/** A chunk's entries from `from` to before `to` as a chunk of their own. */
export function sliceChunk(chunk: Chunk, from: number, to: number): Chunk {
  const start = chunk.offsets[from]!;
  return {
    petIds: chunk.petIds.slice(from, to),
    offsets: chunk.offsets.slice(from, to + 1).map((offset) => offset - start),
    json: Buffer.from(chunk.json.subarray(start, chunk.offsets[to])),
  };
}

/** The place of the first petId that is not smaller, from `from` on. */
export function lowerBound(petIds: BigInt64Array, petId: bigint, from = 0): number {
  let low = from;
  let high = petIds.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (petIds[middle]! < petId) low = middle + 1;
    else high = middle;
  }
  return low;
}
