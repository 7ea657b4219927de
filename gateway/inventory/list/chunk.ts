/** A chunk of the list: a few hundred entries that follow each other, as JSON that is ready to be sent. */
import type { Item, ListedItem } from "../../../proto/pet.ts";
import { invariant } from "../../../runtime/invariant.ts";
import { lowerBound } from "./lower-bound.ts";

/**
 * Entries in the order of petId, as JSON. A removed one stays among them, with the revision that removed it and no
 * JSON, until it is forgotten. A chunk never changes, so a slow response that holds it sends the state that it began
 * with.
 */
export interface Chunk {
  readonly petIds: BigInt64Array<ArrayBuffer>;
  /** The revision that last changed each entry. */
  readonly revisions: BigInt64Array<ArrayBuffer>;
  /** At least the latest revision of its entries. A search for changes after this revision skips the chunk. */
  readonly maxRevision: bigint;
  /** At most the revision of the first removal among its entries. */
  readonly minRemovalRevision: bigint;
  /** The number of entries that are not removed. */
  readonly liveCount: number;
  /** Where each entry's JSON begins, and after these, where the JSON of the last entry ends. */
  readonly offsets: Uint32Array<ArrayBuffer>;
  /** The JSON of the entries, each with a comma before it. */
  readonly json: Buffer;
}

/** Later than every revision. */
const never = 2n ** 63n;

/** @throws InvariantError where the parts of a chunk disagree: readers would get other entries' bytes */
function sealed(chunk: Chunk): Chunk {
  const { petIds, revisions, offsets, json, liveCount } = chunk;
  const count = petIds.length;
  const isWhole = revisions.length === count && offsets.length === count + 1 && liveCount >= 0 && liveCount <= count;
  invariant(isWhole && offsets[count] === json.length, "the bytes of a chunk are those of its entries");
  return chunk;
}

/** Makes a chunk of entries in the order of petId. */
export function makeChunk(items: readonly ListedItem[]): Chunk {
  const petIds = new BigInt64Array(items.length);
  const revisions = new BigInt64Array(items.length);
  const offsets = new Uint32Array(items.length + 1);
  let [maxRevision, minRemovalRevision, liveCount] = [0n, never, 0];
  let text = "";
  items.forEach((item, i) => {
    petIds[i] = item.petId;
    revisions[i] = item.revision;
    if (item.revision > maxRevision) maxRevision = item.revision;
    if (!item.removed) liveCount += 1;
    else if (item.revision < minRemovalRevision) minRemovalRevision = item.revision;
    text += renderListed(item);
    offsets[i + 1] = text.length; // the JSON is ASCII: characters are bytes
  });
  const json = joinBytes([Buffer.from(text, "latin1")]);
  return sealed({ petIds, revisions, maxRevision, minRemovalRevision, liveCount, offsets, json });
}

/**
 * Merges edits into a copy of a chunk. What does not change is copied as bytes, not rendered.
 *
 * @param edits the new states of entries, in the order of petId, at most one for each
 */
export function editChunk(chunk: Chunk, edits: readonly ListedItem[]): Chunk {
  const parts: Buffer[] = [];
  const places: Place[] = [];
  let { maxRevision, minRemovalRevision, liveCount } = chunk;
  let next = 0;
  for (const item of edits) {
    const { petId, revision, removed } = item;
    const at = indexFrom(chunk.petIds, petId, next);
    if (at > next) parts.push(chunk.json.subarray(chunk.offsets[next], chunk.offsets[at]));
    const isThere = chunk.petIds[at] === petId;
    const json = Buffer.from(renderListed(item), "latin1");
    parts.push(json);
    places.push({ petId, at, isThere, length: json.length, revision });
    if (revision > maxRevision) maxRevision = revision;
    if (removed && revision < minRemovalRevision) minRemovalRevision = revision;
    liveCount += Number(!removed) - Number(isThere && !isRemoved(chunk, at));
    next = isThere ? at + 1 : at;
  }
  parts.push(chunk.json.subarray(chunk.offsets[next]));
  return sealed({ ...movePlaces(chunk, places), maxRevision, minRemovalRevision, liveCount, json: joinBytes(parts) });
}

/** Where an edit goes. */
interface Place {
  readonly petId: bigint;
  /** The index in the old chunk. */
  readonly at: number;
  /** Whether the old chunk has the entry. */
  readonly isThere: boolean;
  /** Bytes of the new JSON. */
  readonly length: number;
  readonly revision: bigint;
}

/** The arrays of an edited chunk. It shares with the old chunk those without a change, usually petIds and offsets. */
function movePlaces(chunk: Chunk, places: readonly Place[]): Pick<Chunk, "petIds" | "revisions" | "offsets"> {
  const { petIds, offsets } = chunk;
  const added = places.filter(({ isThere }) => !isThere).length;
  if (added === 0 && places.every(({ at, length }) => offsets[at + 1]! - offsets[at]! === length)) {
    const revisions = chunk.revisions.slice();
    for (const { at, revision } of places) revisions[at] = revision;
    return { petIds, revisions, offsets };
  }

  const count = petIds.length + added;
  const newPetIds = added === 0 ? petIds : new BigInt64Array(count);
  const revisions = new BigInt64Array(count);
  const newOffsets = new Uint32Array(count + 1);
  let from = 0;
  let to = 0;
  const keep = (end: number) => {
    if (added > 0) newPetIds.set(petIds.subarray(from, end), to);
    revisions.set(chunk.revisions.subarray(from, end), to);
    for (; from < end; from++, to++) newOffsets[to + 1] = newOffsets[to]! + offsets[from + 1]! - offsets[from]!;
  };
  for (const { petId, at, isThere, length, revision } of places) {
    keep(at);
    if (isThere) from++;
    newPetIds[to] = petId;
    revisions[to] = revision;
    newOffsets[to + 1] = newOffsets[to]! + length;
    to++;
  }
  keep(petIds.length);
  return { petIds: newPetIds, revisions, offsets: newOffsets };
}

/**
 * Leaves out the entries that were removed by a revision up to `floor`, which are forgotten. They have no JSON, so the
 * chunk's JSON stays as it is.
 */
export function forgetRemovals(chunk: Chunk, floor: bigint): Chunk {
  if (chunk.minRemovalRevision > floor) return chunk;
  const kept: number[] = [];
  let minRemovalRevision = never;
  for (let at = 0; at < chunk.petIds.length; at++) {
    const revision = chunk.revisions[at]!;
    if (!isRemoved(chunk, at)) kept.push(at);
    else if (revision > floor) {
      kept.push(at);
      if (revision < minRemovalRevision) minRemovalRevision = revision;
    }
  }
  return sealed({
    ...chunk,
    petIds: BigInt64Array.from(kept, (at) => chunk.petIds[at]!),
    revisions: BigInt64Array.from(kept, (at) => chunk.revisions[at]!),
    offsets: Uint32Array.from([...kept, chunk.petIds.length], (at) => chunk.offsets[at]!),
    minRemovalRevision,
  });
}

/** Copies the entries from `from` to before `to` into a chunk of their own. */
export function sliceChunk(chunk: Chunk, from: number, to: number): Chunk {
  const start = chunk.offsets[from]!;
  let liveCount = 0;
  for (let at = from; at < to; at++) if (!isRemoved(chunk, at)) liveCount += 1;
  return sealed({
    petIds: chunk.petIds.slice(from, to),
    revisions: chunk.revisions.slice(from, to),
    maxRevision: chunk.maxRevision, // a bound, as is the next one: the newest entry of this part may be older
    minRemovalRevision: chunk.minRemovalRevision,
    liveCount,
    offsets: chunk.offsets.slice(from, to + 1).map((offset) => offset - start),
    json: joinBytes([chunk.json.subarray(start, chunk.offsets[to])]),
  });
}

/** Whether the entry at an index was removed. */
export function isRemoved({ offsets }: Chunk, index: number): boolean {
  return offsets[index] === offsets[index + 1];
}

/** The index of the first petId that is not smaller, at or after `from`. */
export function indexFrom(petIds: BigInt64Array, petId: bigint, from = 0): number {
  return lowerBound(from, petIds.length, (index) => petIds[index]! < petId);
}

/** The JSON of the entry at an index, without a comma. */
export function jsonAt({ json, offsets }: Chunk, index: number): string {
  return json.toString("latin1", offsets[index]! + 1, offsets[index + 1]);
}

/** Strong tag of an entry at a revision, for `If-Match` and `If-None-Match`. */
export function entryEtag(revision: bigint): string {
  return `"r${revision}"`;
}

/** The JSON of InventoryItem. petId is written as an integer in full: JSON.stringify takes no bigint. */
export function renderItem({ petId, quantity, status }: Omit<Item, "revision">): string {
  return `{"petId":${petId},"quantity":${quantity},"status":"${status}"}`;
}

/** The JSON of an entry as a chunk has it; a removed one has none. */
function renderListed(item: ListedItem): string {
  return item.removed ? "" : `,${renderItem(item)}`;
}

/**
 * Joins parts in memory of their own. `Buffer.concat`, `Buffer.from` and zlib mostly return a view of a larger block,
 * which lives as long as any view of it. A list keeps its bytes for hours, and would keep the whole blocks with them.
 */
export function joinBytes(parts: readonly Uint8Array[]): Buffer {
  const bytes = Buffer.allocUnsafeSlow(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
