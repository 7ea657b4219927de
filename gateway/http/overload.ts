/** Detects when there is more to do than one thread can do, and decides which requests are then refused. */
import type { ServerResponse } from "node:http";
import { type EventLoopUtilization, performance } from "node:perf_hooks";

export interface OverloadOptions {
  /** An overload begins when the event loop is late by more than this. */
  readonly maxDelayMs: number;
  /** Requests that may wait for an answer during an overload. */
  readonly maxWaiting: number;
  readonly onRefusal: () => void;
  /** Called when an overload begins and when it ends. */
  readonly onChange: (isOverloaded: boolean) => void;
}

/** How often the delay of the event loop is measured. */
const probeMs = 50;

/** An overload ends after a window of `windowMs` in which the event loop was busy for at most `busyShare` of it. */
const windowMs = 1_000;
const busyShare = 0.9;

/**
 * An overload begins when the event loop gets to a timer late. During an overload only a limited number of requests may
 * wait for an answer: every waiting request delays those that come later. Further requests are refused early, which is
 * cheap, so that the thread can finish useful work.
 *
 * A single late turn, such as a garbage collection, refuses no request while at most `maxWaiting` requests wait.
 */
export class Overload {
  readonly #options: OverloadOptions;
  readonly #timer: NodeJS.Timeout;
  /** Responses that are not over. */
  #open = 0;
  /**
   * The number of open responses that do not wait for this thread, by `countForOthers`; counted once per turn of the
   * event loop.
   */
  #forOthers: number | undefined;
  readonly #leave = () => {
    this.#open -= 1;
  };
  #probedMs = performance.now();
  /** The current window: its start, and the use of the event loop up to it. Undefined while there is no overload. */
  #window: { sinceMs: number; use: EventLoopUtilization } | undefined;

  constructor(options: OverloadOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.#probe(), probeMs);
    this.#timer.unref();
  }

  /**
   * Takes a request in, until its response closes. Responses are counted and not collected in a Set, which would cost
   * more (docs/performance.md).
   *
   * @param countForOthers counts the open responses that do not wait for this thread: those that have begun, and those
   *   of `waitsForOthers`
   * @returns false for a request that has to be refused
   */
  enter(response: ServerResponse, countForOthers: () => number): boolean {
    this.#open += 1;
    response.on("close", this.#leave);
    if (this.#window === undefined) return true;
    if (this.#forOthers === undefined) {
      this.#forOthers = countForOthers();
      setImmediate(() => {
        this.#forOthers = undefined; // some are over by the next turn
      });
    }
    if (this.#open - this.#forOthers <= this.#options.maxWaiting) return true;
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
    } else if (nowMs - this.#window.sinceMs >= windowMs) {
      const isBusy = performance.eventLoopUtilization(this.#window.use).utilization > busyShare;
      this.#window = isBusy ? { sinceMs: nowMs, use: performance.eventLoopUtilization() } : undefined;
      if (!isBusy) onChange(false);
    }
  }
}
