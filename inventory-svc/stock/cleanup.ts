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
export function ledgerKeptMsOf(historyDays: number): number {
  return Math.max(historyDays * 24 * hourMs, repeatsKeptMs);
}

/** How long removed entries stay as tombstones: a reader that asks at least this often never falls below the floor. */
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
 * Deletes what is old, at once and then every minute. Every service does this, so that none has to be chosen: the
 * second one finds nothing to do.
 *
 * @returns a function that ends it, and that resolves when its last statement has ended
 */
export function startCleanup({ retention, ledgerKeptMs, onError, onWait }: CleanupOptions): () => Promise<void> {
  const stopped = new AbortController();
  const eachMinute = async (work: () => Promise<void>) => {
    while (!stopped.signal.aborted) {
      await work().catch(onError);
      await pause(intervalMs, stopped.signal);
    }
  };
  let waits = false;
  const mustWait = async () => {
    const hasGap = await retention.hasGap(gapMs, clockWaitMs);
    if (hasGap && !waits) onWait();
    waits = hasGap;
    return hasGap;
  };
  const deleteAll = async (step: CleanupStep) => {
    const mayGoOn = async () => !stopped.signal.aborted && !(await mustWait()); // the clock may be set meanwhile
    while ((await mayGoOn()) && (await step())) await pause(pauseMs, stopped.signal);
  };
  const cleanUp = async () => {
    const forgetRemovals = () => retention.forgetRemovals(removalsKeptMs, batchSize);
    for (const step of [...ledgerSteps(retention, ledgerKeptMs), forgetRemovals]) await deleteAll(step).catch(onError);
  };
  // A note is made each hour, and more than two hours between two notes are a gap. So failures may last an hour.
  const running = Promise.all([eachMinute(() => retention.noteTime(hourMs)), eachMinute(cleanUp)]);
  return async () => {
    stopped.abort();
    await running;
  };
}

/** Deletes some of what is old. @returns whether there may be more. @throws StockUnavailableError */
export type CleanupStep = () => Promise<boolean>;

/** Makes the steps that delete old changes from the ledger: one for those that made a revision, one for the others. */
export function ledgerSteps(retention: Pick<Retention, "deleteFromLedger">, ageMs: number): CleanupStep[] {
  return (["revisions", "unchanged"] as const).map((kind) => {
    let after: bigint | undefined;
    return async () => {
      after = await retention.deleteFromLedger(ageMs, batchSize, kind, after ?? 0n);
      return after !== undefined;
    };
  });
}

async function pause(durationMs: number, stopped: AbortSignal): Promise<void> {
  await setTimeout(durationMs, undefined, { signal: stopped, ref: false }).catch(() => {});
}
