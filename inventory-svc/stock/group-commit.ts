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
  /** Writes changes in one transaction and resolves when they are durable, with an outcome for each. */
  readonly write: (changes: readonly Change[]) => Promise<readonly Outcome[]>;
  /** Changes in one transaction at the most. */
  readonly maxBatch: number;
  /** Changes that may wait at the most. */
  readonly maxQueued: number;
  /** Told of every change whose turn has come how long it waited. */
  readonly onTurn: (waitedMs: number) => void;
}

interface Waiting {
  readonly change: Change;
  readonly isWanted: () => boolean;
  readonly sinceMs: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * One transaction at a time takes everything that waits: a commit costs a wait for the disk, and this way all who
 * arrive during one share the next.
 */
export class GroupCommit {
  readonly #options: GroupCommitOptions;
  #queue: Waiting[] = [];
  #running: Promise<void> | undefined;

  constructor(options: GroupCommitOptions) {
    this.#options = options;
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
      this.#queue.push({ change, isWanted, sinceMs: performance.now(), resolve, reject });
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
      const batch: Waiting[] = [];
      const nowMs = performance.now();
      for (const waiting of this.#queue.splice(0, this.#options.maxBatch)) {
        this.#options.onTurn(nowMs - waiting.sinceMs);
        if (waiting.isWanted()) batch.push(waiting);
        else waiting.reject(new ExpiredError());
      }
      await this.#commit(batch);
    }
    this.#running = undefined;
  }

  async #commit(batch: readonly Waiting[]): Promise<void> {
    if (batch.length === 0) return;
    try {
      const outcomes = await this.#options.write(batch.map((waiting) => waiting.change));
      batch.forEach((waiting, i) => {
        waiting.resolve(outcomes[i]!);
      });
    } catch (error) {
      for (const waiting of batch) waiting.reject(error);
    }
  }
}
