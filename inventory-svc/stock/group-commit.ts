/** Writes the changes of many callers in common transactions. */
import { type Context, ROOT_CONTEXT, type Span, trace } from "@opentelemetry/api";
import { Batches, type Take } from "../../runtime/batches.ts";
import { invariant } from "../../runtime/invariant.ts";
import { inSpan } from "../../runtime/spans.ts";
import type { ChangeGroup, Outcome } from "./change.ts";
import type { StockStore } from "./stock-store.ts";
import type { WriteRequest } from "./write.ts";

export interface GroupCommitOptions {
  /** Writes changes in one transaction, without those that are not wanted any more. */
  readonly store: Pick<StockStore, "writeWanted">;
  /** Maximum changes in one transaction. A group that is larger has one of its own. */
  readonly maxBatch: number;
  /** While so many changes wait, further groups are refused. */
  readonly maxQueued: number;
  /** Gets the time that each group of changes waited, when it leaves the queue. */
  readonly onDequeued: (waitedMs: number) => void;
  /** Gets the size of each batch and the duration of its write, the wait for the lock included. */
  readonly onWritten: (changes: number, durationMs: number, isCommitted: boolean) => void;
  /** Milliseconds of a clock that never goes back; by default `performance.now`. */
  readonly elapsedMs?: () => number;
}

/** The least that the limit of a batch can be, unless `maxBatch` is less. */
const minBatchLimit = 48;

/** The limit is right when the database is busy this many times as long as it is idle. */
const targetBusyRatio = 4;

/** Uninterrupted writing multiplies the batch limit by e in this time. */
const growthTimeMs = 100;

interface QueuedWrite extends WriteRequest {
  /** The span of the caller, when it is traced. */
  readonly span: Span | undefined;
  readonly sinceMs: number;
  readonly resolve: (outcomes: readonly Outcome[]) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Writes changes of many callers in batches, one transaction at a time. A commit waits for the disk, and all changes
 * that arrive during one commit share the next one.
 *
 * A batch has a limit, because a transaction with every caller in it leaves the database idle until they come back. In
 * several batches, the database writes one while the callers of another come back. But where a commit takes long, the
 * database is busy anyway, and only larger batches help. So the limit follows from how much of the time the database is
 * busy.
 */
export class GroupCommit {
  readonly #options: GroupCommitOptions;
  readonly #elapsedMs: () => number;
  readonly #batches: Batches<QueuedWrite>;
  /** Fractional; rounded down for each batch. */
  #batchLimit: number;
  #adjustedAtMs: number;
  #queued = 0;

  constructor(options: GroupCommitOptions) {
    this.#options = options;
    this.#elapsedMs = options.elapsedMs ?? (() => performance.now());
    this.#batchLimit = Math.min(minBatchLimit, options.maxBatch);
    this.#adjustedAtMs = this.#elapsedMs();
    this.#batches = new Batches(async (take) => {
      this.#adjustBatchLimit(-targetBusyRatio);
      await this.#commit(take);
      this.#adjustBatchLimit(1);
    });
  }

  /**
   * Queues changes, and resolves with their outcomes once they are durable. Groups are written in the order of arrival,
   * and the changes of a group in one transaction.
   *
   * @param isWanted called until the changes are decided; false keeps them from being written
   * @returns an outcome for each change, in order
   * @throws QueueFullError, ExpiredError, or what the write throws
   */
  submit(group: ChangeGroup, isWanted: () => boolean): Promise<readonly Outcome[]> {
    if (this.#queued >= this.#options.maxQueued) return Promise.reject(new QueueFullError());
    return new Promise((resolve, reject) => {
      const span = trace.getActiveSpan();
      this.#queued += group.changes.length;
      this.#batches.add({ group, isWanted, span, sinceMs: this.#elapsedMs(), resolve, reject });
    });
  }

  /** Changes that wait for their batch. */
  get queued(): number {
    return this.#queued;
  }

  /** Resolves when nothing waits or is being written. */
  async drain(): Promise<void> {
    await this.#batches.idle();
  }

  /** Writes the next batch, and settles its changes. */
  async #commit(take: Take<QueuedWrite>): Promise<void> {
    const startedMs = this.#elapsedMs();
    const batch = take(this.#countWithin(Math.floor(this.#batchLimit)));
    this.#queued -= countChanges(batch);
    for (const { sinceMs } of batch) this.#options.onDequeued(startedMs - sinceMs);
    const measure = (requests: readonly WriteRequest[], isCommitted: boolean) => {
      if (requests.length === 0) return;
      this.#options.onWritten(countChanges(requests), this.#elapsedMs() - startedMs, isCommitted);
    };
    try {
      const written = await inCommitSpan(batch, async () => this.#options.store.writeWanted(batch));
      for (const [{ group }, outcomes] of written) {
        invariant(isAnswered(group, outcomes), "each change has an outcome of its own entry");
      }
      for (const waiting of batch) {
        const outcomes = written.get(waiting);
        if (outcomes) waiting.resolve(outcomes);
        else waiting.reject(new ExpiredError());
      }
      measure([...written.keys()], true);
    } catch (error) {
      for (const { reject } of batch) reject(error);
      measure(batch, false);
    }
  }

  /** How many of the groups that wait make a batch with this limit of changes: at least one. */
  #countWithin(limit: number): number {
    const { waiting } = this.#batches;
    let count = 0;
    for (let changes = 0; count < waiting.length; count++) {
      changes += waiting[count]!.group.changes.length;
      if (changes > limit && count > 0) break;
    }
    return count;
  }

  /** Grows (1) or shrinks (-`targetBusyRatio`) the batch limit by the time since the last adjustment. */
  #adjustBatchLimit(direction: number): void {
    const nowMs = this.#elapsedMs();
    const limit = this.#batchLimit * Math.exp((direction * (nowMs - this.#adjustedAtMs)) / growthTimeMs);
    this.#batchLimit = Math.min(Math.max(limit, minBatchLimit), this.#options.maxBatch);
    this.#adjustedAtMs = nowMs;
  }
}

function isAnswered({ changes }: ChangeGroup, outcomes: readonly Outcome[]): boolean {
  if (outcomes.length !== changes.length) return false;
  return outcomes.every((outcome, i) => !("item" in outcome) || outcome.item.petId === changes[i]!.petId);
}

function countChanges(batch: readonly WriteRequest[]): number {
  return batch.reduce((sum, { group }) => sum + group.changes.length, 0);
}

/** Too many changes wait already. Nothing of this change has happened, and the caller may retry later. */
export class QueueFullError extends Error {
  constructor() {
    super("too many changes are waiting to be written");
    this.name = "QueueFullError";
  }
}

/** The caller stopped waiting before its change was decided. Nothing of this change has happened. */
export class ExpiredError extends Error {
  constructor() {
    super("the caller stopped waiting before the change was written");
    this.name = "ExpiredError";
  }
}

/**
 * Runs a commit in a span of its own. It belongs to the trace of the first change; the spans of the other changes are
 * linked with it, both ways.
 *
 * @param batch of changes, in order, traced or not
 */
async function inCommitSpan<T>(batch: readonly QueuedWrite[], commit: () => Promise<T>): Promise<T> {
  const [first, ...others] = batch.flatMap(({ span }) => span ?? []);
  const parent: Context = first ? trace.setSpan(ROOT_CONTEXT, first) : ROOT_CONTEXT;
  const options = {
    attributes: { "petstore.groups": batch.length },
    links: others.map((other) => ({ context: other.spanContext() })),
  };
  return await inSpan("commit", options, parent, async (span) => {
    for (const other of others) other.addLink({ context: span.spanContext() });
    return await commit();
  });
}
