/** Keeps callers from waiting for a Redis that does not answer. */
import { inTime } from "../../runtime/event-loop.ts";

/** Longest wait of requests for an answer. Only the first requests wait so long: then the breaker is open. */
export const answerTimeoutMs = 200;

export interface BreakerOptions {
  /** Resolves when Redis can do again what it failed to do for this key. */
  readonly probe: (key: string) => Promise<unknown>;
  readonly probeIntervalMs: number;
  /** Gets every change; `cause` is the failure that opened the breaker. */
  readonly onChange: (isOpen: boolean, cause: unknown) => void;
}

/**
 * Opens at the first failure, and rejects every call at once until a probe succeeds. A call without an answer in time
 * ends the others that wait, too: together they wait for one time-out.
 */
export class Breaker {
  readonly #options: BreakerOptions;
  /** Functions that reject the calls under way. */
  readonly #waiting = new Set<(error: Error) => void>();
  /** The timer of the probes; "ended" once they are over for good; undefined while the breaker is closed. */
  #probing: NodeJS.Timeout | "ended" | undefined;

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  get isOpen(): boolean {
    return this.#probing !== undefined;
  }

  /**
   * @param key of the call on Redis, or a name in its place: probes write to the node that has it
   * @throws Error while the breaker is open (then nothing is called), and when no answer comes in time; or what the
   *   call throws
   */
  async run<T>(key: string, call: () => Promise<T>): Promise<T> {
    if (this.isOpen) throw away();
    const { promise: opened, reject } = Promise.withResolvers<never>();
    this.#waiting.add(reject);
    try {
      return await Promise.race([redisInTime(call()), opened]);
    } catch (error) {
      this.open(key, error);
      throw error;
    } finally {
      this.#waiting.delete(reject);
    }
  }

  /** @param key the breaker closes once Redis accepts a write for this key */
  open(key: string, cause: unknown): void {
    if (this.isOpen) return;
    const timer = setInterval(() => {
      this.#options.probe(key).then(
        () => {
          if (this.#probing !== timer) return; // a probe of an earlier outage
          clearInterval(timer);
          this.#probing = undefined;
          this.#options.onChange(false, undefined);
        },
        () => {},
      );
    }, this.#options.probeIntervalMs);
    this.#probing = timer.unref();
    if (cause instanceof NoAnswerError) for (const reject of this.#waiting) reject(away());
    this.#options.onChange(true, cause);
  }

  /** Opens the breaker for good, without probes: the connection to Redis ends. */
  end(): void {
    clearInterval(this.#probing);
    this.#probing = "ended";
  }
}

function away(): Error {
  return new Error("Redis is away");
}

/**
 * Waits for an answer of Redis. An answer that arrived in time counts, even if this thread reads it late: Redis has run
 * the command, and to decide again would charge twice. This does not hold when the thread was busy for more than a
 * second: then the `commandTimeout` of ioredis comes first.
 *
 * @throws what the command throws; NoAnswerError when there is no answer in time
 */
export function redisInTime<T>(answer: Promise<T>): Promise<T> {
  return inTime(answer, answerTimeoutMs, () => new NoAnswerError(`no answer within ${answerTimeoutMs} ms`));
}

class NoAnswerError extends Error {}
