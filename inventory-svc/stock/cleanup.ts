/** Forgets old records of changes and old removals, in the background. */
import { setTimeout } from "node:timers/promises";
import type { Retention } from "./retention.ts";

const hourMs = 60 * 60_000;

/** How long such changes are recorded: 24 hours are promised, and one more allows for a clock that is set forward. */
export const retentionMs = 25 * hourMs;

/** How long removed entries stay as tombstones: a reader that asks at least this often never has to list the stock. */
export const removalsKeptMs = 30 * 24 * hourMs;

/** Rows of one step, and the pause after it: writers have to get in between, above all on SQLite. */
const batchSize = 500;
const pauseMs = 50;

const intervalMs = 60_000;

export interface CleanupOptions {
  readonly retention: Pick<Retention, "deleteRecords" | "noteTime" | "forgetRemovals">;
  /** Gets every failure. The next attempt is a minute later. */
  readonly onError: (error: unknown) => void;
}

/**
 * Forgets what is old now and every minute. Every replica does this, so that none has to be chosen: the second one
 * finds nothing to do.
 *
 * @returns ends it, and resolves when its last statement has ended
 */
export function startCleanup({ retention, onError }: CleanupOptions): () => Promise<void> {
  const stopped = new AbortController();
  const run = async () => {
    while (!stopped.signal.aborted) {
      await deleteOldRecords(retention, stopped.signal).catch(onError);
      await forgetOldRemovals(retention, stopped.signal).catch(onError);
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
export async function deleteOldRecords(
  retention: Pick<Retention, "deleteRecords">,
  stopped: AbortSignal,
): Promise<void> {
  let after: bigint | undefined = 0n;
  while (!stopped.aborted) {
    after = await retention.deleteRecords(retentionMs, batchSize, after);
    if (after === undefined) return;
    await pause(pauseMs, stopped);
  }
}

/** Forgets all removals that are old, in small steps. @throws StockUnavailableError */
async function forgetOldRemovals(retention: CleanupOptions["retention"], stopped: AbortSignal): Promise<void> {
  if (!stopped.aborted) await retention.noteTime(hourMs);
  while (!stopped.aborted && (await retention.forgetRemovals(removalsKeptMs, batchSize))) {
    await pause(pauseMs, stopped);
  }
}

async function pause(durationMs: number, stopped: AbortSignal): Promise<void> {
  await setTimeout(durationMs, undefined, { signal: stopped, ref: false }).catch(() => {});
}
