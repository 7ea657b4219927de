/** The list of all stock, ready to be sent. */
import type { StockChanges } from "../../../client/index.ts";
import { invariant } from "../../../runtime/invariant.ts";
import { SharedRead } from "../../../runtime/shared-read.ts";
import { ApiError } from "../../http/api-error.ts";
import { forgetRemovals } from "./chunk.ts";
import { editChunks } from "./chunks.ts";
import { alwaysAnsweredChanges, findDifference, maxAnswered, renderDifference } from "./difference.ts";
import { Load, type StockSource } from "./load-list.ts";
import { type BodyReader, ServingQueue } from "./serving-queue.ts";
import { type Body, epochTagOf, Snapshot } from "./snapshot.ts";

type Changes = Extract<StockChanges, { kind: "changes" }>;

/** A position as the `ETag` of the list has it. */
export interface ListTag {
  /** What `epochTagOf` makes of its epoch. */
  readonly epochTag: string;
  readonly revision: bigint;
}

/** The whole list as gzip. */
export interface GzipList {
  readonly etag: string;
  readonly body: Body;
}

/**
 * Keeps the list as JSON that is ready to be sent, and brings it up to date at every read for the price of what
 * changed.
 *
 * Reads are linearizable by one rule: a read uses only a check that began after the read did. Reads that arrive while a
 * check is under way share the next one.
 *
 * A read waits at most one time-out for the check under way and the next check together, and at most a second time-out
 * until its list is compressed. A load, or a check with many changes, may take longer while its parts keep coming.
 */
export class StockList {
  readonly #source: StockSource;
  readonly #checks: SharedRead<Snapshot>;
  /** One snapshot is deflated at a time: each change makes another one, and a deflation keeps its own alive. */
  readonly #deflations: SharedRead<GzipList>;
  #snapshot: Snapshot | undefined;
  /**
   * What a check with very many changes has made of the list so far. No reader sees it: some of its entries may be
   * newer than its revision, as after a load.
   */
  #partial: Snapshot | undefined;
  /** The load that is under way while there is no snapshot. */
  #load = new Load();
  /** Removals by a revision up to this one may be missing from the list. */
  #floor = 0n;
  /**
   * Differences are made one after the other, because many may be asked for at once, and `PinnedBodies` counts each
   * only while it is sent. Long ones, which may be as large as the list, hold up no short ones.
   */
  readonly #shortDifferences: ServingQueue<Body | undefined>;
  readonly #longDifferences: ServingQueue<Body>;
  /** The end of the latest check, Unix milliseconds. */
  #checkedAtMs = 0;
  #onChange: (petIds: readonly bigint[] | undefined) => void = () => {};

  /** @param timeoutMs the longest wait of a read, from its arrival or from the latest part of a long answer */
  constructor(source: StockSource, timeoutMs: number) {
    this.#source = source;
    const patience = (late: string) => {
      return { timeoutMs, lateError: () => new ApiError("timeout", { cause: new Error(late) }) };
    };
    this.#shortDifferences = new ServingQueue(timeoutMs);
    this.#longDifferences = new ServingQueue(timeoutMs);
    this.#checks = new SharedRead(() => this.#check(), patience(lateCheck));
    this.#deflations = new SharedRead(() => this.#deflate(), patience("the list was not compressed in time"));
  }

  /** The list as the latest check left it, and when that was; undefined while there is none. For metrics. */
  get last(): { readonly snapshot: Snapshot; readonly checkedAtMs: number } | undefined {
    return this.#snapshot && { snapshot: this.#snapshot, checkedAtMs: this.#checkedAtMs };
  }

  /**
   * Calls a listener at each change of the list, right after it.
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

  /** The list as gzip, at least as new as a snapshot that was just read. @throws ApiError timeout */
  gzipOf({ gzip, gzipEtag }: Snapshot): Promise<GzipList> {
    return gzip ? Promise.resolve({ etag: gzipEtag, body: gzip }) : this.#deflations.next();
  }

  async #deflate(): Promise<GzipList> {
    const snapshot = this.#snapshot ?? (await this.readFresh()); // after a reset there is no list
    const body = snapshot.gzip ?? (await snapshot.deflate(() => this.#deflations.progress()));
    return { etag: snapshot.gzipEtag, body };
  }

  /**
   * Makes the difference between the list at a revision and now, from memory. To be called after `readFresh`.
   *
   * @param since an `ETag` of the list
   * @param reader accounts take turns; nothing is made for a reader that has left
   * @returns what `renderDifference` makes
   * @throws ApiError changes_unavailable for a position of another epoch, of the future or below the floor, and for too
   *   many changes; ApiError timeout
   */
  async changesSince(since: ListTag, reader: BodyReader): Promise<Body> {
    this.#snapshotSince(since); // what is refused need not wait
    const askedMs = performance.now();
    const name = `${since.epochTag}-${since.revision}`;
    const short = await this.#shortDifferences.serve(name, reader, askedMs, async () => {
      const difference = await findDifference(this.#snapshotSince(since), since.revision, alwaysAnsweredChanges);
      return difference && (await renderDifference(difference));
    });
    if (short) return short;
    return await this.#longDifferences.serve(name, reader, askedMs, async () => {
      const snapshot = this.#snapshotSince(since);
      const difference = await findDifference(snapshot, since.revision, maxAnswered(snapshot));
      if (!difference) throw new ApiError("changes_unavailable");
      return await renderDifference(difference);
    });
  }

  /**
   * The list, if it knows what has changed since the tag. After a reset there is no list.
   *
   * @throws ApiError changes_unavailable
   */
  #snapshotSince({ epochTag, revision }: ListTag): Snapshot {
    const snapshot = this.#snapshot;
    const knows = snapshot && epochTag === epochTagOf(snapshot.epoch) && revision <= snapshot.revision;
    if (!knows || revision < this.#floor) throw new ApiError("changes_unavailable");
    return snapshot;
  }

  async #check(): Promise<Snapshot> {
    for (let resets = 0; resets < maxResets; ) {
      const checked = await this.#checkOnce();
      if (checked instanceof Snapshot) return checked;
      if (checked === "reset") resets += 1;
      else this.#progress();
    }
    throw new ApiError("service_unavailable", { cause: new Error("the services do not agree on the stock's epoch") });
  }

  /**
   * Checks the list.
   *
   * @returns "more" after the first of many changes; "reset" once the old list is dropped, so that memory never holds
   *   two
   */
  async #checkOnce(): Promise<Snapshot | "reset" | "more"> {
    const whole = this.#snapshot;
    const isPartial = this.#partial !== undefined;
    const snapshot = this.#partial ?? whole ?? (await this.#load.finish(this.#source, () => this.#progress()));
    // Only the position goes to the source, which keeps it for a while. A snapshot would keep the whole list alive.
    const { epoch, revision } = snapshot;
    const changes = await this.#source.changesAfter(
      { epoch, revision },
      { progress: () => this.#progress(), setback: (error) => this.#checks.setback(error) },
    );
    // Only after a check that succeeded: after a failed one, the next check begins with what is loaded.
    if (!whole) this.#load = new Load();
    if (changes.kind === "changes") {
      refuseOlder(snapshot, changes);
      invariant(!whole || changes.floor >= this.#floor, "the floor of removals never falls within an epoch");
    }
    // Before the edit: if that fails, the next read loads the list again.
    this.#snapshot = this.#partial = undefined;
    if (changes.kind === "reset") return "reset";
    const next = nextSnapshot(snapshot, changes);
    if (changes.more) {
      this.#snapshot = whole;
      this.#partial = next;
      return "more";
    }
    this.#snapshot = next;
    this.#floor = changes.floor;
    this.#checkedAtMs = Date.now();
    if (!whole || isPartial) this.#onChange(undefined);
    else if (next !== snapshot) this.#onChange(changes.items.map(({ petId }) => petId));
    return next;
  }

  #progress(): void {
    this.#checks.progress();
    this.#deflations.progress(); // one may wait for the list
  }
}

/**
 * Maximum resets in one check. A restore of the database causes one reset; services that answer from two databases
 * cause any number.
 */
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
export function isAt(snapshot: Snapshot, { epochTag, revision }: ListTag): boolean {
  return snapshot.revision === revision && epochTagOf(snapshot.epoch) === epochTag;
}
