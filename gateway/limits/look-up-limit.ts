/** Bounds the look-ups of unknown keys by what is left of the limit of the address they come from. */
import type { Decision } from "./windows.ts";

/** The look-ups of one address that are under way. */
interface LookUps {
  count: number;
  /** Settles when the next one of them does. */
  next: PromiseWithResolvers<void>;
}

/**
 * Stands between unknown keys and the store. An address has at most as many look-ups under way as its limit has left,
 * so that a flood of made-up keys costs the store hardly more look-ups than the limit; further ones wait for the next
 * one to settle. An address with nothing left has none.
 */
export class LookUpLimit {
  readonly #currentLimits: (address: string) => Decision;
  readonly #underWay = new Map<string, LookUps>();

  /** @param currentLimits the one window of an address, without a charge */
  constructor(currentLimits: (address: string) => Decision) {
    this.#currentLimits = currentLimits;
  }

  /** @throws AddressExhaustedError, or what a look-up of this address throws */
  async run<T>(address: string, lookUp: () => Promise<T>): Promise<T> {
    while (!this.#mayBegin(address)) await this.#underWay.get(address)!.next.promise;
    const lookUps = this.#underWay.get(address) ?? { count: 0, next: nextOne() };
    this.#underWay.set(address, lookUps);
    lookUps.count += 1;
    try {
      const found = await lookUp();
      lookUps.next.resolve();
      return found;
    } catch (error) {
      lookUps.next.reject(error); // a store that cannot be asked has no answer for the waiting look-ups either
      throw error;
    } finally {
      lookUps.next = nextOne();
      lookUps.count -= 1;
      if (lookUps.count === 0) this.#underWay.delete(address);
    }
  }

  #mayBegin(address: string): boolean {
    const decision = this.#currentLimits(address);
    if (!decision.admitted) throw new AddressExhaustedError(decision);
    return (this.#underWay.get(address)?.count ?? 0) < decision.windows[0]!.remaining;
  }
}

/** The address of a request has nothing left of its limit: the key was not looked up. */
export class AddressExhaustedError extends Error {
  /** The limit of the address at that moment. */
  readonly decision: Decision;

  constructor(decision: Decision) {
    super("the address has nothing left of its limit");
    this.name = "AddressExhaustedError";
    this.decision = decision;
  }
}

function nextOne(): PromiseWithResolvers<void> {
  const next = Promise.withResolvers<void>();
  next.promise.catch(() => {}); // perhaps no look-up waits for it
  return next;
}
