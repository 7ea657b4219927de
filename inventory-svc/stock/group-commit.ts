import type { Change, Outcome } from "./changes.ts";

/** Too much waits already: nothing of this change has happened, and the caller may try again later. */
export class QueueFullError extends Error {
  constructor() {
    super("too many changes are waiting to be written");
    this.name = "QueueFullError";
  }
}

/** The caller stopped waiting before its turn came: nothing of this change has happened. */
export class ExpiredError extends Error {
  constructor() {
    super("the caller stopped waiting before the change was written");
    this.name = "ExpiredError";
  }
}

export interface GroupCommitOptions {
  /**
   * Writes changes in one transaction and resolves when they are durable, with an outcome for each.
   *
   * @param more takes those that have come meanwhile; they go behind the others, and have outcomes too. Not given where
   * there is no room for any
   */
  readonly write: (changes: readonly Change[], more?: () => readonly Change[]) => Promise<readonly Outcome[]>;
  /** Changes in one transaction at the most. */
  readonly maxBatch: number;
  /** Changes that may wait at the most. */
  readonly maxQueued: number;
  /** Told of every change whose turn has come how long it waited. */
  readonly onTurn: (waitedMs: number) => void;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
}

/** A transaction has room for so many changes at the least. */
const leastRoom = 48;

/** How many times as long as it idles the database is to write. */
const busyPerIdle = 4;

/** So much time of writing without a break gives a transaction e times the room. */
const growMs = 100;

interface Waiting {
  readonly change: Change;
  readonly isWanted: () => boolean;
  readonly sinceMs: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * One transaction at a time takes what waits: a commit costs a wait for the disk, and this way all who arrive during one
 * share the next. While it waits for transactions of others, it may take what comes meanwhile.
 *
 * It has room for as many as keep the database busy, and not more. When all callers are in one transaction, all wait
 * for it, and then it waits for all of them to come back; in several groups they take turns. But where a commit takes
 * long, the database is busy anyway, and only larger groups help. So the room follows from how much it idles.
 */
export class GroupCommit {
  readonly #options: GroupCommitOptions;
  #queue: Waiting[] = [];
  #running: Promise<void> | undefined;
  /** Changes that a transaction takes at the most, in whole ones. */
  #room: number;
  #adaptedMs: number;

  constructor(options: GroupCommitOptions) {
    this.#options = options;
    this.#room = Math.min(leastRoom, options.maxBatch);
    this.#adaptedMs = options.now();
  }

  /**
   * Resolves with the outcome once it is durable, in the order of arrival.
   *
   * @param isWanted asked when the change's turn comes; when false it is not written
   * @throws QueueFullError, ExpiredError, or what `write` throws: then it is not known whether the change happened
   */
  submit(change: Change, isWanted: () => boolean = () => true): Promise<Outcome> {
    if (this.#queue.length >= this.#options.maxQueued) return Promise.reject(new QueueFullError());
    return new Promise((resolve, reject) => {
      this.#queue.push({ change, isWanted, sinceMs: this.#options.now(), resolve, reject });
      this.#running ??= this.#run();
    });
  }

  /** Changes that wait for their turn. */
  get queued(): number {
    return this.#queue.length;
  }

  /** Resolves when nothing waits or is being written. */
  async drain(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    await undefined; // the rest of what arrived together joins the first transaction
    while (this.#queue.length > 0) {
      this.#adapt(-busyPerIdle);
      await this.#commit();
      this.#adapt(1);
    }
    this.#running = undefined;
  }

  /** Those whose turn has come: so many of them at the most. */
  #take(count: number): Waiting[] {
    const nowMs = this.#options.now();
    const wanted: Waiting[] = [];
    for (const waiting of this.#queue.splice(0, count)) {
      this.#options.onTurn(nowMs - waiting.sinceMs);
      if (waiting.isWanted()) wanted.push(waiting);
      else waiting.reject(new ExpiredError());
    }
    return wanted;
  }

  /** Makes the room larger (1) or smaller (-4) by the time that has passed since the last time. */
  #adapt(weight: number): void {
    const nowMs = this.#options.now();
    const room = this.#room * Math.exp((weight * (nowMs - this.#adaptedMs)) / growMs);
    this.#room = Math.min(Math.max(room, leastRoom), this.#options.maxBatch);
    this.#adaptedMs = nowMs;
  }

  async #commit(): Promise<void> {
    const batch = this.#take(this.#room);
    if (batch.length === 0) return;
    const more = () => {
      const late = this.#take(this.#room - batch.length);
      batch.push(...late);
      return late.map((waiting) => waiting.change);
    };
    try {
      const changes = batch.map((waiting) => waiting.change);
      const outcomes = await this.#options.write(changes, this.#queue.length === 0 ? more : undefined);
      batch.forEach((waiting, i) => {
        waiting.resolve(outcomes[i]!);
      });
    } catch (error) {
      for (const waiting of batch) waiting.reject(error);
    }
  }
}
