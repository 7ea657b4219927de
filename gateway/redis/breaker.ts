export interface BreakerOptions {
  /** Resolves when Redis does again what it failed to do for this key. */
  readonly probe: (key: string) => Promise<unknown>;
  readonly probeIntervalMs: number;
  /** Told of every change. */
  readonly onChange: (isOpen: boolean, cause: unknown) => void;
}

/**
 * Stands between the limits and Redis: the first failure opens it, and then nobody waits for Redis until a probe has
 * found that it answers again.
 */
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
   * @param key one that the call is about
   * @throws Error when Redis is away, and then nothing was sent; or what the call throws
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
