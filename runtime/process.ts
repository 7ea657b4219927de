import { existsSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { ListenError } from "./admin.ts";
import type { Logger } from "./log.ts";
import { SettingsError } from "./settings.ts";

/** sysexits.h EX_CONFIG: something is wrong with the configuration, so a restart will not help. */
const exitConfiguration = 78;

export interface RunningProcess {
  readonly log: Logger;
  /** How long it goes on serving after `leave`. */
  readonly drainDelaySeconds: number;
  /** The longest that all of a stop may take, the delay included, before the process ends by force. */
  readonly drainSeconds: number;
  /** Addresses as bound, `host:port`; told when the process is ready. */
  readonly addresses: { readonly listen: string; readonly admin: string };
  /** Tells whoever asks that it is not ready any more. It still serves, as those who send requests here may not know yet. */
  leave(): void;
  /**
   * Refuses new work, finishes what runs and closes everything, in the reverse order of its construction, except that
   * probes are answered until the work has ended.
   */
  stop(): Promise<void>;
}

/**
 * Runs a process from its settings to its end: SIGTERM and SIGINT drain it (`leave`, the delay, `stop`), a second
 * signal or the end of `drainSeconds` ends it by force. Prints one line when it is ready to serve.
 *
 * @param help text for `--help`
 * @param start reads the settings, constructs and listens; throws SettingsError for a wrong configuration
 */
export async function runProcess(help: string, start: () => Promise<RunningProcess>): Promise<void> {
  if (process.argv.includes("--help") || process.argv.includes("-h")) {
    process.stdout.write(`${help}\n`);
    return;
  }
  // At the first load, with a young generation that is still small, nearly all objects of requests outlive a collection.
  // V8 would conclude that some kinds of them should be born old. Those then keep what they refer to alive, request for
  // request, until the next full collection, which takes a third of the throughput with many requests at once.
  setFlagsFromString("--no-allocation-site-pretenuring");
  loadEnvFile();
  let running: RunningProcess;
  // Nothing to drain yet. As the first process of a container it would get no signal that it does not listen to.
  // `disconnect`: whoever started this process over a channel is gone.
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
  // In this order: a signal that nobody listens to for an instant ends a process without a drain.
  process.on("SIGTERM", stop).on("SIGINT", stop);
  process.on("disconnect", () => stopping || stop("SIGTERM")); // no second signal when it comes behind one
  process.off("SIGTERM", giveUp).off("SIGINT", giveUp).off("disconnect", giveUp);
  log.child({}, { level: "info" }).info(running.addresses, "ready"); // whatever LOG_LEVEL says: others wait for it
  if (process.connected) process.send!(running.addresses);
}

async function drain(running: RunningProcess): Promise<void> {
  running.leave();
  await setTimeout(running.drainDelaySeconds * 1_000);
  await running.stop();
}

/**
 * Resolves once `check` does, or rejects with the reason of the signal. Until then the process stays up and says why it
 * cannot serve: a database that is still starting, or a schema that is still being migrated, is no reason for a restart.
 */
export async function untilReady(check: () => Promise<void>, log: Logger, signal?: AbortSignal): Promise<void> {
  let lastReason = "";
  for (;;) {
    signal?.throwIfAborted();
    try {
      return await check();
    } catch (error) {
      const { message, cause } = error as Error;
      // Without its times and durations: grpc-js says when it has tried.
      const reason = `${message} ${(cause as Error | undefined)?.message}`.replace(/\d+/g, "");
      if (reason !== lastReason && !signal?.aborted) log.warn({ reason: message, err: cause }, "not ready yet");
      lastReason = reason;
      await setTimeout(readyRetryMs);
    }
  }
}

const readyRetryMs = 250;

/** Takes settings from a `.env` file in the working directory; what the environment has already wins. */
export function loadEnvFile(): void {
  if (existsSync(".env")) process.loadEnvFile(".env");
}

/** Ends the process over a fault at the start: what an operator can mend without a stack trace, anything else with one. */
export function exitWith(error: unknown): never {
  if (error instanceof SettingsError) {
    process.stderr.write(`${error.message}\n`);
    process.exit(exitConfiguration);
  }
  const { message, stack }: Partial<Error> = Object(error);
  process.stderr.write(`${(error instanceof ListenError ? message : stack) ?? error}\n`);
  process.exit(1);
}
