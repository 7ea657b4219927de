import { LRUCache } from "lru-cache";

/** An address whose limit is spent gets another look-up after so long, and has saved up so many at most. */
const spareEveryMs = 50;
const mostSpare = 5;

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
  /** Look-ups that it may have when its limit is spent, as of then. */
  spare: number;
  spareAtMs: number;
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
 * has left: whatever they find, it cannot go far beyond its limit. With nothing left it has one now and then, for good
 * keys whose first use comes at that moment: a flood costs the store a trickle, and a good key gets through after some
 * tries, as the next look-up is anybody's.
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
      crowd = { underWay: 0, next: nextOne(), spare: mostSpare, spareAtMs: this.#options.now() };
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
    const earned = Math.max(0, nowMs - crowd.spareAtMs) / spareEveryMs;
    crowd.spare = Math.min(mostSpare, crowd.spare + earned);
    crowd.spareAtMs = nowMs;
    if (crowd.underWay > 0 || crowd.spare < 1) throw new TooManyStrangersError();
    crowd.spare -= 1;
    return true;
  }
}

function nextOne(): PromiseWithResolvers<void> {
  const next = Promise.withResolvers<void>();
  next.promise.catch(() => {}); // there may be nobody who waits for it
  return next;
}
