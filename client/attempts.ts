/** Holds callers while the service or its database is away. */

/** Waits between attempts, in milliseconds; the last one repeats. */
const waitsMs = [1, 25, 50, 100, 200];

/**
 * Repeats an attempt until it settles, or until its time is over, so that callers see a short outage, such as a
 * failover, as a delay.
 *
 * @param attempt tries once, and resolves to true when another attempt would change nothing
 * @param endMs gives the time after which no attempt begins, by `performance.now()`; called after each attempt and wait
 * @throws what an attempt throws
 */
export async function untilSettled(attempt: () => Promise<boolean>, endMs: () => number): Promise<void> {
  for (let i = 0; !(await attempt()); i++) {
    const leftMs = endMs() - performance.now();
    if (leftMs <= 0) return;
    const waitMs = waitsMs[Math.min(i, waitsMs.length - 1)]! * (0.75 + Math.random() / 2); // not all at once
    await new Promise((resolve) => setTimeout(resolve, Math.min(waitMs, leftMs)));
    if (performance.now() >= endMs()) return;
  }
}

/**
 * Knows the age of the present outage. Only a young one holds callers: in a long one they would gather and wait in
 * vain.
 */
export class Outage {
  readonly #patienceMs: number;
  #beganMs = Number.NEGATIVE_INFINITY;
  #lastFailureMs = Number.NEGATIVE_INFINITY;

  /** @param patienceMs the age from which an outage holds no callers any more */
  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs;
  }

  /** Notes that an attempt has failed. @returns the time until which callers are held, by `performance.now()` */
  failed(): number {
    const nowMs = performance.now();
    const isAnother = nowMs - this.#lastFailureMs > this.#patienceMs + waitsMs.at(-1)!;
    if (isAnother) this.#beganMs = nowMs;
    this.#lastFailureMs = nowMs;
    return this.#beganMs + this.#patienceMs;
  }

  succeeded(): void {
    this.#lastFailureMs = Number.NEGATIVE_INFINITY;
  }
}
