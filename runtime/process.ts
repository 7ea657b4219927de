/** The life of a process: settings, start, one line when it is ready, and a stop that drains. */
import { existsSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { ListenError } from "./admin.ts";
import { kindOf } from "./error-log.ts";
import type { Logger } from "./log.ts";
import { SettingsError } from "./settings.ts";

/** sysexits.h EX_CONFIG: the configuration is wrong, so a restart will not help. */
const exitConfiguration = 78;

export interface RunningProcess {
  readonly log: Logger;
  /** How long it serves after `leave`. */
  readonly drainDelaySeconds: number;
  /** The longest that a stop may take, the delay included, before the process ends by force. */
  readonly drainSeconds: number;
  /** Addresses as bound, `host:port`; logged when the process is ready. */
  readonly addresses: { readonly listen: string; readonly admin: string };
  /** Reports that it is no longer ready. It still serves, because load balancers may not have noticed yet. */
  leave(): void;
  /**
   * Refuses new work, finishes what runs and closes everything in the reverse order of its construction. Probes are
   * answered until the work has ended.
   */
  stop(): Promise<void>;
}

/**
 * Runs a process from its settings to its end. SIGTERM and SIGINT drain it (`leave`, the delay, `stop`). A second
 * signal or the end of `drainSeconds` ends it by force. It prints one line when it is ready to serve.
 *
 * @param help text for `--help`
 * @param start reads the settings, constructs and listens; throws SettingsError for a wrong configuration
 */
export async function runProcess(help: string, start: () => Promise<RunningProcess>): Promise<void> {
  if (process.argv.includes("--help") || process.argv.includes("-h")) {
    process.stdout.write(`${help}\n`);
    return;
  }
  // Under the first load V8's young generation is still small, and nearly all objects of requests survive a collection.
  // V8 would then allocate such objects in the old generation, where they keep everything they refer to alive until the
  // next full collection. With many requests at once that costs a third of the throughput.
  setFlagsFromString("--no-allocation-site-pretenuring");
  loadEnvFile();
  let running: RunningProcess;
  // There is nothing to drain yet. The first process of a container gets no signal that it does not listen to.
  // `disconnect`: the process that started this one over a channel has ended.
  const giveUp = () => process.exit(0);
  process.on("SIGTERM", giveUp).on("SIGINT", giveUp).on("disconnect", giveUp);
  try {
    running = await start();
  } catch (error) {
    exitWith(error);
  }
  const { log } = running;
  let stopping = false;
  const stop = (signal: NodeJS.Signals) => {
    if (stopping) process.exit(1);
    stopping = true;
    log.info({ signal }, "draining");
    globalThis
      .setTimeout(() => {
        log.warn({ drainSeconds: running.drainSeconds }, "still busy at the end of the drain: ending by force");
        process.exit(1);
      }, running.drainSeconds * 1_000)
      .unref();
    drain(running).then(
      () => {
        log.info("stopped");
        log.flush(() => process.exit(0));
      },
      (error) => {
        log.error({ err: error }, "the stop failed");
        log.flush(() => process.exit(1));
      },
    );
  };
  // Added before the others are removed: a signal without a listener would end the process without a drain.
  process.on("SIGTERM", stop).on("SIGINT", stop);
  process.on("disconnect", () => stopping || stop("SIGTERM")); // after a signal it must not count as a second one
  process.off("SIGTERM", giveUp).off("SIGINT", giveUp).off("disconnect", giveUp);
  log.child({}, { level: "info" }).info(running.addresses, "ready"); // at any LOG_LEVEL, because others wait for this line
  if (process.connected) process.send!(running.addresses);
}

async function drain(running: RunningProcess): Promise<void> {
  running.leave();
  await setTimeout(running.drainDelaySeconds * 1_000);
  await running.stop();
}

/**
 * Resolves once `check` does, or rejects with the reason of the signal. Until then the process stays up and logs why it
 * cannot serve: a database that is still starting, or a schema that is still being migrated, is no reason for a
 * restart.
 */
export async function untilReady(check: () => Promise<void>, log: Logger, signal?: AbortSignal): Promise<void> {
  let lastKind = "";
  for (;;) {
    signal?.throwIfAborted();
    try {
      return await check();
    } catch (error) {
      const { message, cause } = error as Error;
      const kind = kindOf(error);
      if (kind !== lastKind && !signal?.aborted) log.warn({ reason: message, err: cause }, "not ready yet");
      lastKind = kind;
      await setTimeout(readyRetryMs);
    }
  }
}

const readyRetryMs = 250;

/** Reads settings from a `.env` file in the working directory. Variables of the environment win. */
export function loadEnvFile(): void {
  if (existsSync(".env")) process.loadEnvFile(".env");
}

/** Ends the process after a fault at the start, without a stack trace when an operator can mend it. */
export function exitWith(error: unknown): never {
  if (error instanceof SettingsError) {
    process.stderr.write(`${error.message}\n`);
    process.exit(exitConfiguration);
  }
  const { message, stack }: Partial<Error> = Object(error);
  process.stderr.write(`${(error instanceof ListenError ? message : stack) ?? error}\n`);
  process.exit(1);
}
