/** The list of all stock, ready to be sent. */

import type { StockChanges } from "../../../client/index.ts";
import { invariant } from "../../../runtime/invariant.ts";
import { SharedRead } from "../../../runtime/shared-read.ts";
import { ApiError } from "../../http/api-error.ts";
import { forgetRemovals } from "./chunk.ts";
import { editChunks } from "./chunks.ts";
import { type Difference, fewChanges, findDifference, renderDifference } from "./difference.ts";
import { Load, type StockSource } from "./load-list.ts";
import { type Body, epochTag, Snapshot } from "./snapshot.ts";

type Changes = Extract<StockChanges, { kind: "changes" }>;

/** A position as the `ETag` of the list has it. */
export interface ListTag {
  /** `epochTag` of its epoch. */
  readonly epoch: string;
  readonly revision: bigint;
}

/**
 * Keeps the list as JSON that is ready to be sent, and brings it up to date at every read for the price of what
 * changed.
 *
 * Reads are linearizable by one rule: a read uses only a check that began after the read did. Reads that arrive while a
 * check is under way share the next one.
 *
 * A read waits for at most one time-out, for both checks together. A load, or a check with many changes, may take
 * longer while its parts keep coming.
 */
export class StockList {
  readonly #source: StockSource;
  readonly #checks: SharedRead<Snapshot>;
  readonly #timeoutMs: number;
  #snapshot: Snapshot | undefined;
  /** The load that is under way while there is no snapshot. */
  #load = new Load();
  /** Removals by a revision up to this one may be missing from the list. */
  #floor = 0n;
  /** The latest short difference. Readers that a change has woken mostly ask for the same one. */
  #latest: { readonly name: string; readonly body: Promise<Body> } | undefined;
  /**
   * Resolves when the latest long difference is rendered. They are rendered one after the other, because each may be as
   * large as the list and serves one reader: many at once would exhaust the memory. While one is sent, `PinnedBodies`
   * counts it.
   */
  #lastLong: Promise<unknown> = Promise.resolve();
  /** The end of the latest check, Unix milliseconds. */
  #checkedAtMs = 0;
  #onChange: (petIds: readonly bigint[] | undefined) => void = () => {};

  /** @param timeoutMs the longest wait of a read, from its arrival or from the latest part of a long answer */
  constructor(source: StockSource, timeoutMs: number) {
    this.#source = source;
    this.#timeoutMs = timeoutMs;
    const late = () => new ApiError("timeout", { cause: new Error(lateCheck) });
    this.#checks = new SharedRead(() => this.#check(), { timeoutMs, late });
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
  readFresh(arrivedMs?: number): Promise<Snapshot> {
    return this.#checks.next(arrivedMs);
  }

  /**
   * Makes the difference between the list at a revision and now, from memory. To be called after `readFresh`.
   *
   * @param since an `ETag` of the list
   * @param arrivedMs the arrival of the request that needs it, by `performance.now()`
   * @returns what `renderDifference` makes; a long one when its turn has come
   * @throws ApiError changes_unavailable for a position of another epoch, of the future or below the floor, and for too
   *   many changes; ApiError timeout; what the source throws
   */
  async changesSince(since: ListTag, arrivedMs: number): Promise<Body> {
    const snapshot = this.#snapshot ?? (await this.readFresh());
    const name = `${since.epoch} ${since.revision} ${snapshot.etag} ${this.#floor}`;
    if (this.#latest?.name === name) return await this.#latest.body;
    const difference = this.#differenceOf(snapshot, since);
    if (difference.count > fewChanges) return this.#longChangesSince(since, arrivedMs); // and keeps no snapshot
    const body = renderDifference(difference);
    this.#latest = { name, body };
    return await body;
  }

  #longChangesSince(since: ListTag, arrivedMs: number): Promise<Body> {
    const body = this.#lastLong.then(async () => {
      if (performance.now() - arrivedMs > this.#timeoutMs) {
        throw new ApiError("timeout", { cause: new Error("too many long differences were asked for at once") });
      }
      return await renderDifference(this.#differenceOf(this.#snapshot ?? (await this.readFresh()), since));
    });
    this.#lastLong = body.then(
      () => {},
      () => {},
    );
    return body;
  }

  #differenceOf(snapshot: Snapshot, { epoch, revision }: ListTag): Difference {
    const isKnown = epoch === epochTag(snapshot.epoch) && revision <= snapshot.revision && revision >= this.#floor;
    const difference = isKnown ? findDifference(snapshot, revision) : undefined;
    if (!difference) throw new ApiError("changes_unavailable");
    return difference;
  }

  async #check(): Promise<Snapshot> {
    for (let resets = 0; resets < maxResets; resets++) {
      const snapshot = await this.#checkOnce();
      if (snapshot) return snapshot;
    }
    throw new ApiError("service_unavailable", { cause: new Error("the services do not agree on the stock's epoch") });
  }

  /** @returns undefined after a reset: then nothing keeps the old list any more, not even this function */
  async #checkOnce(): Promise<Snapshot | undefined> {
    const isFirstAfterLoad = this.#snapshot === undefined;
    const snapshot = this.#snapshot ?? (await this.#load.finish(this.#source, () => this.#checks.progress()));
    // Only the position goes to the source, which keeps it for a while. A snapshot would keep the whole list alive.
    const { epoch, revision } = snapshot;
    const changes = await this.#source.changesAfter({ epoch, revision }, this.#checks);
    if (isFirstAfterLoad) this.#load = new Load(); // not before: after a failed check, the next one begins with what is loaded
    if (changes.kind === "changes") {
      refuseOlder(snapshot, changes);
      invariant(isFirstAfterLoad || changes.floor >= this.#floor, "the floor of removals never falls within an epoch");
    }
    this.#snapshot = undefined; // also after an edit that fails: the next read then loads the list again
    if (changes.kind === "reset") return undefined;
    this.#snapshot = nextSnapshot(snapshot, changes);
    this.#floor = changes.floor;
    this.#checkedAtMs = Date.now();
    if (isFirstAfterLoad) this.#onChange(undefined);
    else if (this.#snapshot !== snapshot) this.#onChange(changes.items.map(({ petId }) => petId));
    return this.#snapshot;
  }
}

/** A restore of the database causes one, and services that answer from two databases any number. */
const maxResets = 3;

const lateCheck = "the inventory service sent no part of the list, or of its changes, in time";

/** @throws InvariantError for changes that would take the list back, or that are not of this list */
function refuseOlder({ epoch, revision }: Snapshot, { position, items }: Changes): void {
  const isForward = position.epoch === epoch && position.revision >= revision;
  invariant(isForward, "the list never goes back within an epoch");
  const isWithin = items.every((item) => item.revision > revision && item.revision <= position.revision);
  invariant(isWithin, "changes of the list are newer than it, and not newer than their position");
}

/** The list after some changes. Chunks without a change stay the same objects. */
export function nextSnapshot(snapshot: Snapshot, { position, items, floor }: Changes): Snapshot {
  if (position.revision === snapshot.revision) return snapshot;
  const edits = [...items].sort((a, b) => (a.petId < b.petId ? -1 : 1));
  const isOnce = edits.every(({ petId }, i) => i === 0 || edits[i - 1]!.petId < petId);
  invariant(isOnce, "changes of the list have each entry once");
  const chunks = editChunks(snapshot.chunks, edits).map((chunk) => forgetRemovals(chunk, floor));
  const kept = chunks.filter(({ petIds }) => petIds.length > 0);
  return new Snapshot(position.epoch, position.revision, kept, snapshot);
}

/** Whether nothing has changed since an `ETag` of the list. */
export function isAt(snapshot: Snapshot, { epoch, revision }: ListTag): boolean {
  return snapshot.revision === revision && epochTag(snapshot.epoch) === epoch;
}
