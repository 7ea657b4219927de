/** The list of all stock, ready to be sent. */
import type { Item, Position } from "../../../proto/pet.ts";
import { SharedRead } from "../../../runtime/shared-read.ts";
import { ApiError } from "../../http/errors.ts";
import { type Chunk, type Edit, makeChunk } from "./chunk.ts";
import { chunkSize, editChunks } from "./chunks.ts";
import { fewChanges, findDifference, maxChanges, renderDifference } from "./difference.ts";
import { type Removal, Removals } from "./removals.ts";
import { type Body, epochTag, Snapshot } from "./snapshot.ts";
import { Turns } from "./turns.ts";

/** What changed after a position; `reset` when the stock no longer has that position. */
export type ListChanges =
  | { readonly kind: "reset" }
  | {
      readonly kind: "changes";
      readonly position: Position;
      readonly changed: readonly Item[];
      readonly removed: readonly Removal[];
    };

/** A position as the `ETag` of the list has it. */
export interface ListTag {
  /** `epochTag` of its epoch. */
  readonly epoch: string;
  readonly revision: bigint;
}

/** Where the list comes from. */
export interface StockSource {
  /** Every entry in the order of petId, read at or after the position that comes with each batch. */
  load(): AsyncIterable<{ readonly position: Position; readonly items: readonly Item[] }>;
  /** Everything that was committed before the call and after the position. */
  changesAfter(position: Position, report: CheckReport): Promise<ListChanges>;
  /**
   * Everything that was removed after an older position and before the call.
   *
   * @param max changes that may be read for it
   * @returns undefined when there were more changes, and when the stock no longer has that position
   */
  removedAfter(position: Position, max: number, report: CheckReport): Promise<readonly Removal[] | undefined>;
}

/** How a check reports to the reads that wait. */
export interface CheckReport {
  /** A part of the answer has come, and more will. */
  progress(): void;
  /** The check is tried again after this error. */
  setback(error: unknown): void;
}

/**
 * Keeps the list as JSON that is ready to be sent, and brings it up to date at every read for the price of what
 * changed.
 *
 * Reads are linearizable by one rule: a read only uses a check for changes that began after the read did. Reads that
 * arrive while a check is under way share the next one.
 *
 * A read waits for at most one time-out, for both checks together. A load, or a check with many changes, may take
 * longer while its parts keep coming.
 */
export class StockList {
  readonly #source: StockSource;
  readonly #checks: SharedRead<Snapshot>;
  readonly #backfills: SharedRead<void>;
  /**
   * One long difference is rendered at a time, because each may be as large as the list and serves one reader: many at
   * once would exhaust the memory. While one is sent, `HeldVersions` counts it.
   */
  readonly #longReads: Turns;
  #snapshot: Snapshot | undefined;
  #removals = new Removals(0n);
  /** The latest short difference. Readers that a change has woken mostly ask for the same one. */
  #latest: { readonly name: string; readonly body: Promise<Body> } | undefined;
  /** The oldest revision that readers of changes wait for. */
  #asked: bigint | undefined;
  /** There are too many changes after this revision, and so after any older one. */
  #tooOld = -1n;
  /** The end of the latest check, Unix milliseconds. */
  #checkedAtMs = 0;
  #onChange: (petIds: readonly bigint[] | undefined) => void = () => {};

  /** @param timeoutMs the longest wait of a read, from its arrival or from the latest part of a long answer */
  constructor(source: StockSource, timeoutMs: number) {
    this.#source = source;
    const patience = { timeoutMs, late: () => new ApiError("timeout", { cause: late() }) };
    this.#checks = new SharedRead(() => this.#check(), patience);
    this.#backfills = new SharedRead(() => this.#backfill(), patience);
    this.#longReads = new Turns(timeoutMs, () => new ApiError("timeout", { cause: lateTurn() }));
  }

  /** The list as the latest check left it, and when that was; undefined before the first one. For metrics. */
  get last(): { readonly snapshot: Snapshot; readonly checkedAtMs: number } | undefined {
    return this.#snapshot && { snapshot: this.#snapshot, checkedAtMs: this.#checkedAtMs };
  }

  /**
   * Has a listener called at each change of the list, right after it.
   *
   * @param listener gets the petIds of what changed; undefined when all of it may have changed
   */
  onChange(listener: (petIds: readonly bigint[] | undefined) => void): void {
    this.#onChange = listener;
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

  /**
   * Makes the difference between the list at a revision and now. It is answered from memory, except that the service is
   * asked for removals that are older than this list or were too many to remember. To be called after `current`.
   *
   * @param since an `ETag` of the list
   * @param arrivedMs the arrival of the request that needs it, by `performance.now()`
   * @returns what `renderDifference` makes; a long one when its turn has come
   * @throws ApiError changes_unavailable for a position of another epoch or of the future, and for too many changes;
   *   what the source throws; ApiError timeout
   */
  async changesSince(since: ListTag, arrivedMs: number): Promise<Body> {
    const body = await this.#difference(since, arrivedMs, fewChanges);
    return body ?? (await this.#longReads.run(() => this.#difference(since, arrivedMs, Number.POSITIVE_INFINITY)))!;
  }

  /** @returns undefined for more changes than `max` */
  async #difference(since: ListTag, arrivedMs: number, max: number): Promise<Body | undefined> {
    for (;;) {
      const snapshot = this.#snapshot;
      const { revision } = since;
      if (!snapshot) {
        await this.current();
        continue;
      }
      if (since.epoch !== epochTag(snapshot.epoch) || revision > snapshot.revision || revision <= this.#tooOld) break;
      if (revision >= this.#removals.from) {
        const name = `${since.epoch} ${revision} ${snapshot.revision}`;
        if (this.#latest?.name === name) return await this.#latest.body;
        const difference = findDifference(snapshot, revision, this.#removals.after(revision));
        if (!difference) break;
        if (difference.count > max) return undefined;
        const body = renderDifference(difference);
        if (difference.count <= fewChanges) this.#latest = { name, body };
        return await body;
      }
      if (this.#asked === undefined || revision < this.#asked) this.#asked = revision;
      await this.#backfills.next(arrivedMs);
    }
    throw new ApiError("changes_unavailable");
  }

  /** Makes the list know the removals after the oldest revision that is asked for. */
  async #backfill(): Promise<void> {
    const [revision, removals, snapshot] = [this.#asked, this.#removals, this.#snapshot];
    this.#asked = undefined;
    if (revision === undefined || !snapshot) return;
    const { from } = removals;
    const max = maxChanges(snapshot);
    const removed = await this.#source.removedAfter({ epoch: snapshot.epoch, revision }, max, this.#backfills);
    // An entry that was made again before the source was read is no removal there, but may still be missing in the list.
    await this.current();
    if (this.#removals !== removals || removals.from !== from) return; // the list has forgotten: it is asked again
    if (removed) removals.addOlder(revision, removed);
    else this.#tooOld = revision;
  }

  async #check(): Promise<Snapshot> {
    for (;;) {
      const snapshot = this.#snapshot ?? (await this.#load());
      const isLoaded = snapshot !== this.#snapshot;
      // Only the position goes to the source, which keeps it for a while. A snapshot would keep the whole list alive.
      const { epoch, revision } = snapshot;
      const changes = await this.#source.changesAfter({ epoch, revision }, this.#checks);
      if (changes.kind === "changes") {
        this.#snapshot = nextSnapshot(snapshot, changes);
        this.#removals.add(changes.removed, changes.position.revision, () => maxChanges(snapshot));
        this.#checkedAtMs = Date.now();
        if (isLoaded) this.#onChange(undefined);
        else if (this.#snapshot !== snapshot) this.#onChange(petIdsOf(changes));
        return this.#snapshot;
      }
      this.#snapshot = undefined;
    }
  }

  /** Reads all entries. They may be newer than the position; the check that follows makes up for that. */
  async #load(): Promise<Snapshot> {
    const chunks: Chunk[] = [];
    let position: Position | undefined;
    let items: Item[] = [];
    for await (const batch of this.#source.load()) {
      position ??= batch.position;
      this.#checks.progress();
      for (const item of batch.items) {
        items.push(item);
        if (items.length === chunkSize) {
          chunks.push(makeChunk(items));
          items = [];
        }
      }
    }
    if (!position) throw new Error("the stock source gave no position");
    if (items.length > 0) chunks.push(makeChunk(items));
    this.#removals = new Removals(position.revision);
    this.#tooOld = -1n;
    return new Snapshot(position.epoch, position.revision, chunks);
  }
}

function late(): Error {
  return new Error("the inventory service did not answer the check of a read in time");
}

function lateTurn(): Error {
  return new Error("too many long differences were asked for at once");
}

/** The list after some changes. Chunks without a change stay the same objects. */
export function nextSnapshot(
  snapshot: Snapshot,
  { position, changed, removed }: Extract<ListChanges, { kind: "changes" }>,
): Snapshot {
  if (position.revision === snapshot.revision) return snapshot;
  const edits: Edit[] = [
    ...changed.map((item) => ({ petId: item.petId, item })),
    ...removed.map(({ petId }) => ({ petId, item: undefined })),
  ].sort((a, b) => (a.petId < b.petId ? -1 : 1));
  return new Snapshot(position.epoch, position.revision, editChunks(snapshot.chunks, edits), snapshot);
}

/** Whether nothing has changed since an `ETag` of the list. */
export function isAt(snapshot: Snapshot, { epoch, revision }: ListTag): boolean {
  return snapshot.revision === revision && epochTag(snapshot.epoch) === epoch;
}

function petIdsOf({ changed, removed }: Extract<ListChanges, { kind: "changes" }>): bigint[] {
  return [...changed, ...removed].map(({ petId }) => petId);
}
