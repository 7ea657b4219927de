import type { ServerResponse } from "node:http";
import { type EventLoopUtilization, performance } from "node:perf_hooks";

export interface OverloadOptions {
  /** An overload begins when the event loop is late by more than this. */
  readonly maxDelayMs: number;
  /** Requests that may wait for an answer during one. */
  readonly maxWaiting: number;
  readonly onRefusal: () => void;
  /** Told when an overload begins and ends. */
  readonly onChange: (isOverloaded: boolean) => void;
}

/** How often the delay of the event loop is looked at. */
const probeMs = 50;

/** An overload ends when the event loop was idle for a part of so long a time. */
const windowMs = 1_000;
const busyShare = 0.9;

/**
 * Tells when there is more to do than one thread can: the event loop, which should get to a timer at once, comes late.
 * From then on only so many requests may wait for an answer at a time. Those make up the delay that the next one has;
 * the others are refused while that is still cheap, so the thread goes on doing useful work.
 *
 * A single late turn, as of a collection of garbage, refuses nobody where fewer requests wait than may.
 */
export class Overload {
  readonly #options: OverloadOptions;
  readonly #timer: NodeJS.Timeout;
  /** Responses that are not over. */
  #open = 0;
  /** Those of them whose head is out; counted once in a turn of the event loop. */
  #sending: number | undefined;
  readonly #leave = () => {
    this.#open -= 1;
  };
  #probedMs = performance.now();
  /** Since when, and the use of the event loop as of then; undefined while there is no overload. */
  #window: { sinceMs: number; use: EventLoopUtilization } | undefined;

  constructor(options: OverloadOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.#probe(), probeMs);
    this.#timer.unref();
  }

  /**
   * Counts, and holds nothing: a collection of the responses would outlive them, and V8 would keep them for longer,
   * which costs more than all the rest of a small request.
   *
   * @param countSending responses whose head is out and whose body is not: who takes a long one slowly does not wait
   *   for this thread
   * @returns false for a request that has to be refused; the others wait for the head of their response
   */
  enter(response: ServerResponse, countSending: () => number): boolean {
    this.#open += 1;
    response.on("close", this.#leave);
    if (this.#window === undefined) return true;
    if (this.#sending === undefined) {
      this.#sending = countSending();
      setImmediate(() => {
        this.#sending = undefined; // some are over by the next turn
      });
    }
    if (this.#open - this.#sending <= this.#options.maxWaiting) return true;
    this.#options.onRefusal();
    return false;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #probe(): void {
    const { maxDelayMs, onChange } = this.#options;
    const nowMs = performance.now();
    const delayMs = nowMs - this.#probedMs - probeMs;
    this.#probedMs = nowMs;
    if (this.#window === undefined) {
      if (delayMs <= maxDelayMs) return;
      this.#window = { sinceMs: nowMs, use: performance.eventLoopUtilization() };
      onChange(true);
      return;
    }
    if (nowMs - this.#window.sinceMs >= windowMs) {
      const isBusy = performance.eventLoopUtilization(this.#window.use).utilization > busyShare;
      this.#window = isBusy ? { sinceMs: nowMs, use: performance.eventLoopUtilization() } : undefined;
      if (!isBusy) onChange(false);
    }
  }
}
