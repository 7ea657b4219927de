/** The life of a process: settings, start, one line when it is ready, and a stop that drains. */
import { setTimeout } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { packageVersion } from "./command-line.ts";
import { kindOf } from "./error-log.ts";
import type { Logger } from "./log.ts";
import { reasonFields } from "./operator-error.ts";
import { SettingsError } from "./settings.ts";

/**
 * For this long after the first signal, further ones count as the same stop. One stop can send several: a terminal and
 * systemd signal every process of a group, and npm passes its signal on.
 */
export const forceAfterMs = 1_000;

/** A process that listens, and may still have to wait for something before it can serve. */
export interface RunningProcess {
  readonly log: Logger;
  /** How long it serves after `leave`, if it has joined. */
  readonly drainDelaySeconds: number;
  /** The longest that a stop may take, the delay included, before the process ends by force. */
  readonly drainSeconds: number;
  /** Addresses as bound, `host:port`; logged when the process is ready. */
  readonly addresses: { readonly listen: string; readonly admin: string };
  /** Resolves when it can serve. */
  untilReady(): Promise<void>;
  /** Reports that it is ready. */
  join(): void;
  /** Reports that it is no longer ready. It still serves, because load balancers may not have noticed yet. */
  leave(): void;
  /**
   * Refuses new work, finishes what runs and closes everything, each part after those that use it. Probes are answered
   * until the work has ended.
   */
  stop(): Promise<void>;
}

/**
 * Runs a process from its settings to its end. SIGTERM and SIGINT drain it (`leave`, the delay, `stop`), also while it
 * is not ready yet: requests may be under way from its first moment on. A signal `forceAfterMs` after the first one, or
 * the end of `drainSeconds`, ends it by force. It prints one line when it is ready to serve.
 *
 * @param start reads the settings, constructs, and at last listens to callers; throws SettingsError for a wrong
 *   configuration
 * @throws what `start` or `untilReady` throws
 */
export async function runProcess(start: () => Promise<RunningProcess>): Promise<void> {
  // Under the first load V8's young generation is still small, and nearly all objects of requests survive a collection.
  // V8 would then allocate such objects in the old generation, where they keep everything they refer to alive until the
  // next full collection. With many requests at once that costs throughput (docs/performance.md).
  setFlagsFromString("--no-allocation-site-pretenuring");
  // Until its ports are open there is nothing to drain. PID 1 of a container gets only signals that it has a handler
  // for. `disconnect`: the process that started this one over a channel has ended.
  const giveUp = () => process.exit(0);
  process.on("SIGTERM", giveUp).on("SIGINT", giveUp).on("disconnect", giveUp);
  const running = await start();
  const { log } = running;
  let stoppingSinceMs: number | undefined;
  let hasJoined = false;
  const stop = (signal: NodeJS.Signals) => {
    const nowMs = performance.now();
    if (stoppingSinceMs !== undefined) {
      if (nowMs - stoppingSinceMs >= forceAfterMs) process.exit(1);
      return;
    }
    stoppingSinceMs = nowMs;
    log.info({ signal }, "draining");
    globalThis
      .setTimeout(() => {
        log.warn({ drainSeconds: running.drainSeconds }, "still busy at the end of the drain: ending by force");
        process.exit(1);
      }, running.drainSeconds * 1_000)
      .unref();
    drain(running, hasJoined ? running.drainDelaySeconds : 0).then(
      () => {
        log.info("stopped");
        process.exit(0);
      },
      (error) => {
        log.error({ err: error }, "the stop failed");
        process.exit(1);
      },
    );
  };
  // Added before the others are removed: a signal without a listener would end the process without a drain.
  process.on("SIGTERM", stop).on("SIGINT", stop);
  process.on("disconnect", () => stoppingSinceMs ?? stop("SIGTERM")); // after a signal it must not count as another
  process.off("SIGTERM", giveUp).off("SIGINT", giveUp).off("disconnect", giveUp);
  try {
    await running.untilReady();
  } catch (error) {
    if (stoppingSinceMs === undefined) throw error;
  }
  if (stoppingSinceMs !== undefined) return;
  running.join();
  hasJoined = true;
  // At any LOG_LEVEL: other processes wait for it.
  log.child({}, { level: "info" }).info({ ...running.addresses, version: packageVersion }, "ready");
  if (process.connected) process.send!(running.addresses);
}

/** @param delaySeconds 0 for a process that no load balancer has met yet */
async function drain(running: RunningProcess, delaySeconds: number): Promise<void> {
  running.leave();
  await setTimeout(delaySeconds * 1_000);
  await running.stop();
}

/**
 * Resolves once `check` does, or rejects with the reason of the signal. Until then the process stays up and logs why it
 * cannot serve: a database that is still starting, or a schema that is still being migrated, is no reason for a
 * restart. No wait mends a wrong setting: this rejects with the SettingsError of the check.
 */
export async function untilReady(check: () => Promise<unknown>, log: Logger, signal?: AbortSignal): Promise<void> {
  let lastKind = "";
  for (;;) {
    signal?.throwIfAborted();
    try {
      return void (await check());
    } catch (error) {
      if (error instanceof SettingsError) throw error; // no wait mends it
      const kind = kindOf(error);
      if (kind !== lastKind && !signal?.aborted) log.warn(reasonFields(error, log), "not ready yet");
      lastKind = kind;
      await setTimeout(readyRetryMs);
    }
  }
}

const readyRetryMs = 250;
