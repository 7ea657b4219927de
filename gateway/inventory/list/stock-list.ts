/** The list of all stock, ready to be sent. */
import type { Item, Position } from "../../../proto/pet.ts";
import { SharedRead } from "../../../runtime/shared-read.ts";
import { ApiError } from "../../http/errors.ts";
import { type Chunk, type Edit, editChunk, entryJson, makeChunk, sliceChunk } from "./chunk.ts";
import { Snapshot } from "./snapshot.ts";

/** What changed after a position; `reset` when the stock no longer has that position. */
export type ListChanges =
  | { readonly kind: "reset" }
  | {
      readonly kind: "changes";
      readonly position: Position;
      readonly changed: readonly Item[];
      readonly removed: readonly bigint[];
    };

/** Where the list comes from. */
export interface StockSource {
  /** Every entry in the order of petId, read at or after the position that comes with each batch. */
  load(): AsyncIterable<{ readonly position: Position; readonly items: readonly Item[] }>;
  /** Everything that was committed before the call and after the position. */
  changesAfter(position: Position, report: CheckReport): Promise<ListChanges>;
}

/** How a check reports to the reads that wait. */
export interface CheckReport {
  /** A part of the answer has come, and more will. */
  progress(): void;
  /** The check is tried again after this error. */
  setback(error: unknown): void;
}

/** Entries in a chunk. One changed entry costs the copy of its chunk; each chunk costs a write for each response. */
const chunkSize = 256;
const maxChunkSize = 2 * chunkSize;

/**
 * Keeps the list as JSON that is ready to be sent, and brings it up to date at every read for the price of what
 * changed.
 *
 * Reads are linearizable by one rule: a read only uses a check for changes that began after the read did. Reads that
 * arrive while a check is under way share the next one.
 *
 * A read waits for at most one time-out, for both checks together. A load, or a check with many changes, may take longer
 * while its parts keep coming.
 */
export class StockList {
  readonly #source: StockSource;
  readonly #checks: SharedRead<Snapshot>;
  #snapshot: Snapshot | undefined;
  /** The end of the latest check, Unix milliseconds. */
  #checkedAtMs = 0;

  /** @param timeoutMs the longest wait of a read, from its arrival or from the latest part of a long answer */
  constructor(source: StockSource, timeoutMs: number) {
    this.#source = source;
    this.#checks = new SharedRead(() => this.#check(), {
      timeoutMs,
      late: () => new ApiError("timeout", { cause: late() }),
    });
  }

  /** The list as the latest check left it, and when that was; undefined before the first one. For metrics. */
  get last(): { readonly snapshot: Snapshot; readonly checkedAtMs: number } | undefined {
    return this.#snapshot && { snapshot: this.#snapshot, checkedAtMs: this.#checkedAtMs };
  }

  /**
   * Reads the list, at least as new as this call.
   *
   * @param arrivedMs the arrival of the request that needs it, by `performance.now()`
   * @throws what the source throws; ApiError timeout for a read that has waited for too long
   */
  current(arrivedMs?: number): Promise<Snapshot> {
    return this.#checks.next(arrivedMs);
  }

  async #check(): Promise<Snapshot> {
    let snapshot = this.#snapshot ?? (await this.#load());
    for (;;) {
      // Only the position goes to the source, which keeps it for a while. A snapshot would keep the whole list alive.
      const { epoch, revision } = snapshot;
      const changes = await this.#source.changesAfter({ epoch, revision }, this.#checks);
      if (changes.kind === "changes") {
        this.#snapshot = nextSnapshot(snapshot, changes);
        this.#checkedAtMs = Date.now();
        return this.#snapshot;
      }
      this.#snapshot = undefined;
      snapshot = await this.#load();
    }
  }

  /** Reads all entries. They may be newer than the position; the check that follows makes up for that. */
  async #load(): Promise<Snapshot> {
    const chunks: Chunk[] = [];
    let position: Position | undefined;
    let edits: Edit[] = [];
    for await (const batch of this.#source.load()) {
      position ??= batch.position;
      this.#checks.progress();
      for (const item of batch.items) {
        edits.push({ petId: item.petId, json: entryJson(item) });
        if (edits.length === chunkSize) {
          chunks.push(makeChunk(edits));
          edits = [];
        }
      }
    }
    if (!position) throw new Error("the stock source gave no position");
    if (edits.length > 0) chunks.push(makeChunk(edits));
    return new Snapshot(position.epoch, position.revision, chunks);
  }
}

function late(): Error {
  return new Error("the inventory service did not answer the check of a read in time");
}

/** The list after some changes. Chunks without a change stay the same objects. */
export function nextSnapshot(
  snapshot: Snapshot,
  { position, changed, removed }: Extract<ListChanges, { kind: "changes" }>,
): Snapshot {
  if (position.revision === snapshot.revision) return snapshot;
  const edits: Edit[] = [
    ...changed.map((item) => ({ petId: item.petId, json: entryJson(item) })),
    ...removed.map((petId) => ({ petId, json: null })),
  ].sort((a, b) => (a.petId < b.petId ? -1 : 1));
  return new Snapshot(position.epoch, position.revision, editChunks(snapshot.chunks, edits), snapshot);
}

/** @param edits in the order of petId, at most one for each petId */
function editChunks(chunks: readonly Chunk[], edits: readonly Edit[]): Chunk[] {
  if (chunks.length === 0) return split(makeChunk(edits.filter(({ json }) => json !== null)));
  const edited = [...chunks];
  // From the last to the first, so that a change in the number of chunks moves none that is still to be edited.
  for (let end = edits.length; end > 0; ) {
    const place = chunkOf(chunks, edits[end - 1]!.petId);
    let begin = end - 1;
    while (begin > 0 && (place === 0 || edits[begin - 1]!.petId >= chunks[place]!.petIds[0]!)) begin--;
    edited.splice(place, 1, ...split(editChunk(chunks[place]!, edits.slice(begin, end))));
    end = begin;
  }
  return edited;
}

/** The index of the chunk that an entry belongs to: the last one that does not begin after it, else the first. */
function chunkOf(chunks: readonly Chunk[], petId: bigint): number {
  let low = 0;
  let high = chunks.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (chunks[middle]!.petIds[0]! <= petId) low = middle;
    else high = middle - 1;
  }
  return low;
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
