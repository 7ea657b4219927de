/** Keeps requests from waiting for a Redis that does not answer. */

export interface BreakerOptions {
  /** Resolves when Redis can do again what it failed to do for this key. */
  readonly probe: (key: string) => Promise<unknown>;
  readonly probeIntervalMs: number;
  /** Gets every change; `cause` is the failure that opened the breaker. */
  readonly onChange: (isOpen: boolean, cause: unknown) => void;
}

/** Opens at the first failure, and rejects every call at once until a probe succeeds. */
export class Breaker {
  readonly #options: BreakerOptions;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  get isOpen(): boolean {
    return this.#timer !== undefined;
  }

  /**
   * @param key one of the keys of the call
   * @throws Error while the breaker is open, without a call; or what the call throws
   */
  async run<T>(key: string, call: () => Promise<T>): Promise<T> {
    if (this.isOpen) throw new Error("Redis is away");
    try {
      return await call();
    } catch (error) {
      this.#open(key, error);
      throw error;
    }
  }

  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #open(key: string, cause: unknown): void {
    if (this.isOpen) return;
    this.#timer = setInterval(() => {
      this.#options.probe(key).then(
        () => {
          if (!this.isOpen) return;
          this.close();
          this.#options.onChange(false, undefined);
        },
        () => {},
      );
    }, this.#options.probeIntervalMs);
    this.#timer.unref();
    this.#options.onChange(true, cause);
  }
}
