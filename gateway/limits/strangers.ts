import { LRUCache } from "lru-cache";

/** Look-ups of an address whose limit is spent: so many in a second, one at a time. */
const spareLookUps = 20;
const spareIntervalMs = 1_000;

const maxAddresses = 100_000;

export interface StrangersOptions {
  /** Requests that the limit of an address has left. */
  readonly remaining: (address: string) => number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** The look-ups that one address has brought about. */
interface Crowd {
  underWay: number;
  /** Settles as the next one of them does. */
  next: PromiseWithResolvers<void>;
  /** Of the second that began then. */
  spareUsed: number;
  spareSinceMs: number;
}

/** The limit of an address is spent, and it has had its look-ups for now: nothing was looked up. */
export class TooManyStrangersError extends Error {
  constructor() {
    super("too many look-ups for one address");
    this.name = "TooManyStrangersError";
  }
}

/**
 * Stands between keys that nobody here has seen and the store. An address has as many look-ups under way as its limit
 * has left: whatever they find, it cannot go far beyond its limit. With nothing left it has a few for good keys whose
 * first use comes at that moment, so a flood costs the store a trickle, and a good key gets through after some tries.
 */
export class Strangers {
  readonly #options: StrangersOptions;
  readonly #crowds = new LRUCache<string, Crowd>({ max: maxAddresses });

  constructor(options: StrangersOptions) {
    this.#options = options;
  }

  /** @throws TooManyStrangersError, or what a look-up of this address throws */
  async lookUp<T>(address: string, lookUp: () => Promise<T>): Promise<T> {
    const crowd = this.#crowdOf(address);
    while (!this.#mayEnter(address, crowd)) await crowd.next.promise;
    crowd.underWay += 1;
    try {
      const found = await lookUp();
      crowd.next.resolve();
      return found;
    } catch (error) {
      crowd.next.reject(error); // a store that cannot be asked has no answer for those who wait either
      throw error;
    } finally {
      crowd.underWay -= 1;
      crowd.next = nextOne();
    }
  }

  #crowdOf(address: string): Crowd {
    let crowd = this.#crowds.get(address);
    if (!crowd) {
      crowd = { underWay: 0, next: nextOne(), spareUsed: 0, spareSinceMs: 0 };
      this.#crowds.set(address, crowd);
    }
    return crowd;
  }

  /** @returns false for who has to wait */
  #mayEnter(address: string, crowd: Crowd): boolean {
    const { remaining, now } = this.#options;
    const left = remaining(address);
    if (left > 0) return crowd.underWay < left;
    const nowMs = now();
    if (Math.abs(nowMs - crowd.spareSinceMs) >= spareIntervalMs) {
      crowd.spareSinceMs = nowMs;
      crowd.spareUsed = 0;
    }
    if (crowd.underWay > 0 || crowd.spareUsed >= spareLookUps) throw new TooManyStrangersError();
    crowd.spareUsed += 1;
    return true;
  }
}

function nextOne(): PromiseWithResolvers<void> {
  const next = Promise.withResolvers<void>();
  next.promise.catch(() => {}); // there may be nobody who waits for it
  return next;
}
