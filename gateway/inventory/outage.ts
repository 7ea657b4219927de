/** Holds callers while the inventory service or its database is away. */

/** Waits between attempts, in milliseconds; the last one repeats. */
const waitsMs = [25, 50, 100, 200];

/**
 * Tries work again where that is safe. So callers see a short outage, such as a failover, as a delay. It does so until
 * the outage is as old as its patience, or the caller has waited for as long as that. From then on work fails after one
 * attempt: a long outage must not gather callers that wait in vain.
 */
export class Outage {
  readonly #patienceMs: number;
  #beganMs = Number.NEGATIVE_INFINITY;
  #lastFailureMs = Number.NEGATIVE_INFINITY;

  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs;
  }

  /**
   * @param work may be called any number of times
   * @param isRepeatable says of an error of `work` that a repeat is safe, because nothing has happened or because it
   *   would change nothing more, and that the outage may be short
   * @param mayRetry asked before each further attempt, with the error of the one before. False once the caller has
   *   left: the work must not happen after what it sends next
   * @param arrivedMs since when the caller waits, by `performance.now()`
   * @throws the error of the last attempt
   */
  async rideOut<T>(
    work: () => Promise<T>,
    isRepeatable: (error: unknown) => boolean,
    mayRetry: (error: unknown) => boolean = () => true,
    arrivedMs: number = performance.now(),
  ): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        const result = await work();
        this.#lastFailureMs = Number.NEGATIVE_INFINITY;
        return result;
      } catch (error) {
        const leftMs = isRepeatable(error) ? this.#patienceLeftMs(arrivedMs) : 0;
        if (leftMs <= 0) throw error;
        const waitMs = waitsMs[Math.min(attempt, waitsMs.length - 1)]! * (0.75 + Math.random() / 2); // not all at once
        await new Promise((resolve) => setTimeout(resolve, Math.min(waitMs, leftMs)));
        if (performance.now() - arrivedMs >= this.#patienceMs || !mayRetry(error)) throw error;
      }
    }
  }

  #patienceLeftMs(arrivedMs: number): number {
    const nowMs = performance.now();
    const isAnother = nowMs - this.#lastFailureMs > this.#patienceMs + waitsMs.at(-1)!;
    if (isAnother) this.#beganMs = nowMs;
    this.#lastFailureMs = nowMs;
    // Another caller's success ends the outage, but not the patience with this caller.
    return this.#patienceMs - (nowMs - Math.min(this.#beganMs, arrivedMs));
  }
}
