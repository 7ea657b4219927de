/** Time as this process gets to use it, for bounds that have to hold on a busy machine. */

const tickMs = 10;
const longestStallMs = 2 * tickMs;

/**
 * A clock that all but stands still while the process gets no time of a processor, as the timers of the process do.
 * Such a pause counts as 20 ms at most. On an idle machine it is a clock like any other.
 */
export class LoopClock implements Disposable {
  #tickedMs = 0;
  #tickedAtMs = performance.now();
  readonly #timer = setInterval(() => {
    this.#tickedMs = this.nowMs;
    this.#tickedAtMs = performance.now();
  }, tickMs).unref();

  /** Milliseconds since its start. */
  get nowMs(): number {
    return this.#tickedMs + Math.min(performance.now() - this.#tickedAtMs, longestStallMs);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
