import { setTimeout } from "node:timers/promises";
import type { StockStore } from "./store.ts";

const hourMs = 60 * 60_000;

/** Callers are promised 24 hours. The rest is for clocks of replicas that disagree. */
export const rememberedMs = 25 * hourMs;

/** Rows that go in one statement, and the rest after it: writers have to get in between, on SQLite above all. */
const batchSize = 500;
const restMs = 50;

const everyMs = 60_000;

export interface ForgettingOptions {
  readonly store: Pick<StockStore, "forgetAdjustments">;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Told of a failure: it is tried again a minute later. */
  readonly onError: (error: unknown) => void;
}

/**
 * Forgets adjustments that are old enough, now and every minute. Each replica does this, so none has to be chosen: who
 * comes second finds nothing to do.
 *
 * @returns ends it, and resolves when its last statement has ended
 */
export function startForgetting({ store, now, onError }: ForgettingOptions): () => Promise<void> {
  const stopped = new AbortController();
  const run = async () => {
    while (!stopped.signal.aborted) {
      await forgetOld(store, now(), stopped.signal).catch(onError);
      await rest(everyMs, stopped.signal);
    }
  };
  const running = run();
  return async () => {
    stopped.abort();
    await running;
  };
}

/** Forgets all that is old at a time, in small steps. @throws StockUnavailableError */
export async function forgetOld(store: ForgettingOptions["store"], nowMs: number, stopped: AbortSignal): Promise<void> {
  let after: bigint | undefined = 0n;
  while (!stopped.aborted) {
    after = await store.forgetAdjustments(nowMs - rememberedMs, batchSize, after);
    if (after === undefined) return;
    await rest(restMs, stopped);
  }
}

async function rest(durationMs: number, stopped: AbortSignal): Promise<void> {
  await setTimeout(durationMs, undefined, { signal: stopped, ref: false }).catch(() => {});
}
