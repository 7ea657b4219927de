/** Notices that the process stood still, as when it is frozen: it reads late what was sent to it meanwhile. */

const tickMs = 100;

/** A longer gap between two looks at the clock is a standstill. */
const noticedMs = 1_000;

/** After this time of running again, everything that came during a standstill has been read. */
const catchUpMs = 1_000;

/** Tells how long messages may have waited to be read. */
export class Standstill {
  readonly #now: () => number;
  readonly #timer: NodeJS.Timeout;
  #lookedAtMs: number;
  /** The last look before the latest standstill. */
  #sinceMs = 0;
  #caughtUpAtMs = Number.NEGATIVE_INFINITY;

  /** @param now milliseconds of a clock that goes on during a standstill and never goes back */
  constructor(now: () => number) {
    this.#now = now;
    this.#lookedAtMs = now();
    this.#timer = setInterval(() => this.#look(), tickMs).unref();
  }

  /** For how long a message that is read now may have waited; 0 unless the process has just stood still. */
  get waitedMs(): number {
    // A process that goes on in the middle of a turn of the event loop reads messages before its timer runs.
    const nowMs = this.#look();
    return nowMs < this.#caughtUpAtMs ? nowMs - this.#sinceMs : 0;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(): number {
    const nowMs = this.#now();
    if (nowMs - this.#lookedAtMs > noticedMs) {
      this.#sinceMs = this.#lookedAtMs;
      this.#caughtUpAtMs = nowMs + catchUpMs;
    }
    this.#lookedAtMs = nowMs;
    return nowMs;
  }
}
