/** Decides when old changes and old removals are forgotten, in the background. */
import { setTimeout } from "node:timers/promises";
import type { Retention } from "./retention.ts";

const hourMs = 60 * 60_000;

/**
 * Nothing is deleted for `clockWaitMs` after a gap of more than `gapMs` in the times that were noted. A database clock
 * that was set forward leaves such a gap, and makes everything old at once: its operator needs time to notice.
 */
const gapMs = 2 * hourMs;
const clockWaitMs = 8 * hourMs;

/**
 * How long repeats are answered at least: 24 hours are promised, also when a clock is set forward by less than a gap.
 */
const repeatsKeptMs = 24 * hourMs + gapMs;

/** How long the ledger keeps changes. @param historyDays 0 where it keeps no more than repeats need */
export function ledgerKeptMs(historyDays: number): number {
  return Math.max(historyDays * 24 * hourMs, repeatsKeptMs);
}

/** How long removed entries stay as tombstones: a reader that asks at least this often never has to list the stock. */
export const removalsKeptMs = 30 * 24 * hourMs;

/** Rows of one step, and the pause after it: writers have to get in between, above all on SQLite. */
const batchSize = 500;
const pauseMs = 50;

const intervalMs = 60_000;

export interface CleanupOptions {
  readonly retention: Pick<Retention, "deleteFromLedger" | "noteTime" | "hasGap" | "forgetRemovals">;
  readonly ledgerKeptMs: number;
  /** Gets every failure. The next attempt is a minute later. */
  readonly onError: (error: unknown) => void;
  /** Is called when a gap begins to hold up deletion. */
  readonly onWait: () => void;
}

/**
 * Forgets what is old now and every minute. Every replica does this, so that none has to be chosen: the second one
 * finds nothing to do.
 *
 * @returns ends it, and resolves when its last statement has ended
 */
export function startCleanup({ retention, ledgerKeptMs, onError, onWait }: CleanupOptions): () => Promise<void> {
  const stopped = new AbortController();
  let waits = false;
  const mustWait = async () => {
    // A note is made each hour, and more than two hours between two notes are a gap. So failures may last an hour.
    await retention.noteTime(hourMs).catch(onError);
    const hasGap = await retention.hasGap(gapMs, clockWaitMs);
    if (hasGap && !waits) onWait();
    waits = hasGap;
    return hasGap;
  };
  const mayGoOn = async () => !stopped.signal.aborted && !(await mustWait()); // the clock may be set within a pass
  const rest = () => pause(pauseMs, stopped.signal);
  const pass = async () => {
    await deleteOldChanges(retention, ledgerKeptMs, { mayGoOn, rest }).catch(onError);
    while ((await mayGoOn()) && (await retention.forgetRemovals(removalsKeptMs, batchSize))) await rest();
  };
  const run = async () => {
    while (!stopped.signal.aborted) {
      await pass().catch(onError);
      await pause(intervalMs, stopped.signal);
    }
  };
  const running = run();
  return async () => {
    stopped.abort();
    await running;
  };
}

/** What is asked between two steps. */
export interface Steps {
  /** Whether the next step may be made. */
  readonly mayGoOn: () => Promise<boolean>;
  /** Lets writers get in between. */
  readonly rest: () => Promise<void>;
}

/** Deletes all changes that are old from the ledger, in small steps. @throws StockUnavailableError */
export async function deleteOldChanges(
  retention: Pick<Retention, "deleteFromLedger">,
  ageMs: number,
  { mayGoOn, rest }: Steps,
): Promise<void> {
  for (const kind of ["revisions", "repeatable"] as const) {
    for (let after: bigint | undefined = 0n; after !== undefined && (await mayGoOn()); ) {
      after = await retention.deleteFromLedger(ageMs, batchSize, kind, after);
      if (after !== undefined) await rest();
    }
  }
}

async function pause(durationMs: number, stopped: AbortSignal): Promise<void> {
  await setTimeout(durationMs, undefined, { signal: stopped, ref: false }).catch(() => {});
}
