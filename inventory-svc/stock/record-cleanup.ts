/** Deletes the records of changes that happen once when they are old enough, in the background. */
import { setTimeout } from "node:timers/promises";
import type { StockStore } from "./store.ts";

const hourMs = 60 * 60_000;

/** How long such changes are recorded: 24 hours are promised, and one more allows for a clock that is set forward. */
export const retentionMs = 25 * hourMs;

/** Records deleted by one statement, and the pause after it: writers have to get in between, above all on SQLite. */
const batchSize = 500;
const pauseMs = 50;

const intervalMs = 60_000;

export interface CleanupOptions {
  readonly store: Pick<StockStore, "deleteRecords">;
  /** Gets every failure. The next attempt is a minute later. */
  readonly onError: (error: unknown) => void;
}

/**
 * Deletes old records now and every minute. Every replica does this, so that none has to be chosen: the second one
 * finds nothing to do.
 *
 * @returns ends it, and resolves when its last statement has ended
 */
export function startRecordCleanup({ store, onError }: CleanupOptions): () => Promise<void> {
  const stopped = new AbortController();
  const run = async () => {
    while (!stopped.signal.aborted) {
      await deleteOldRecords(store, stopped.signal).catch(onError);
      await pause(intervalMs, stopped.signal);
    }
  };
  const running = run();
  return async () => {
    stopped.abort();
    await running;
  };
}

/** Deletes all records that are old, in small steps. @throws StockUnavailableError */
export async function deleteOldRecords(store: CleanupOptions["store"], stopped: AbortSignal): Promise<void> {
  let after: bigint | undefined = 0n;
  while (!stopped.aborted) {
    after = await store.deleteRecords(retentionMs, batchSize, after);
    if (after === undefined) return;
    await pause(pauseMs, stopped);
  }
}

async function pause(durationMs: number, stopped: AbortSignal): Promise<void> {
  await setTimeout(durationMs, undefined, { signal: stopped, ref: false }).catch(() => {});
}
