/** Standard output as the log uses it: its reader rarely holds the process up. */
import { constants, fstatSync, openSync, writeSync } from "node:fs";
import type { Registry } from "prom-client";
import { counter } from "./metrics.ts";

/** Room for unwritten lines: about 30,000, more than a second of the highest load. */
const maxUnwrittenBytes = 8 * 1024 * 1024;

/** What a pipe takes whole or not at all (PIPE_BUF of Linux), so processes that share one do not mix lines. */
const pipePieceBytes = 4096;

/** When a write is tried again: at first soon, because a pipe takes a burst only 64 KiB at a time. */
const firstRetryMs = 1;
const maxRetryMs = 64;

/** How long the end of a process waits for a reader to take the last lines. */
const exitWaitMs = 1_000;

/**
 * Writes lines with calls that do not block, those of a turn of the event loop together. What is not taken is tried
 * again, also at the end of the process. When too much is unwritten, lines are dropped until all of it is written.
 */
export class LogOutput {
  readonly #fd = openStandardOutput();
  readonly #pieceBytes = fstatSync(this.#fd).isFIFO() ? pipePieceBytes : Number.POSITIVE_INFINITY;
  #lines = "";
  /** What is left of lines that were written in part. */
  #rest = Buffer.alloc(0);
  #unwrittenBytes = 0;
  #isScheduled = false;
  #retryMs = firstRetryMs;
  /** Lines that were dropped since the last one that was kept. */
  #gap = 0;
  #lost = 0;
  /** Called where the log goes on after a gap, with the number of lines that were dropped. */
  onGapEnd: (lines: number) => void = () => {};

  constructor() {
    process.on("exit", () => this.#writeLast());
  }

  /** Counts the lines that were dropped. @param tier begins the name of the metric */
  expose(registry: Registry, tier: string): void {
    const help = "Lines of the log that were dropped because standard output did not take them";
    counter({ name: `${tier}_log_lines_lost_total`, help, registry }, () => this.#lost);
  }

  /** @param line with its end */
  write(line: string): void {
    const bytes = Buffer.byteLength(line);
    if (this.#gap > 0 || this.#unwrittenBytes + bytes > maxUnwrittenBytes) {
      this.#gap += 1;
      this.#lost += 1;
    } else {
      this.#lines += line;
      this.#unwrittenBytes += bytes;
    }
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#writeOrRetry());
  }

  #writeOrRetry(): void {
    const beforeBytes = this.#unwrittenBytes;
    this.#isScheduled = this.#writeAll() !== undefined;
    if (!this.#isScheduled) return;
    this.#retryMs = this.#unwrittenBytes < beforeBytes ? firstRetryMs : Math.min(2 * this.#retryMs, maxRetryMs);
    setTimeout(() => this.#writeOrRetry(), this.#retryMs).unref();
  }

  #writeLast(): void {
    const endMs = performance.now() + exitWaitMs;
    const sleeper = new Int32Array(new SharedArrayBuffer(4));
    while (this.#writeAll()?.code === "EAGAIN" && performance.now() < endMs) Atomics.wait(sleeper, 0, 0, firstRetryMs);
  }

  /** @returns what keeps it from writing all lines */
  #writeAll(): NodeJS.ErrnoException | undefined {
    for (;;) {
      if (this.#rest.length === 0 && this.#lines === "") {
        if (this.#gap === 0) return undefined;
        const lines = this.#gap;
        this.#gap = 0;
        this.onGapEnd(lines);
      }
      if (this.#rest.length === 0) [this.#rest, this.#lines] = [Buffer.from(this.#lines), ""];
      try {
        const written = writeSync(this.#fd, this.#rest, 0, this.#pieceLength());
        this.#rest = this.#rest.subarray(written);
        this.#unwrittenBytes -= written;
      } catch (error) {
        return error as NodeJS.ErrnoException;
      }
    }
  }

  /** The bytes of the next write: whole lines, or a part of a line that is too long. */
  #pieceLength(): number {
    if (this.#rest.length <= this.#pieceBytes) return this.#rest.length;
    return this.#rest.lastIndexOf("\n", this.#pieceBytes - 1) + 1 || this.#pieceBytes;
  }
}

/**
 * Opens standard output so that a write to it does not block. A pipe or a terminal is opened again, because processes
 * that share it, such as npm or a shell, also share whether it blocks, and may change that. A socket cannot be opened
 * again: it does not block because Node prepares `process.stdout` so. A write to a file waits for no reader. Two kinds
 * of pipe cannot be opened either: that of another user, and a FIFO without a reader. Their shared descriptor is used,
 * so a write blocks where a process that shares it has made it so.
 */
function openStandardOutput(): number {
  const { fd = 1 } = process.stdout; // undefined in a worker thread
  if (fstatSync(fd).isFile()) return fd;
  try {
    return openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch {
    return fd;
  }
}
