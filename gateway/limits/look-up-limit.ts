/** Bounds the look-ups of unknown keys, and shares them out between the addresses that they come from. */
import { UnusablePlanError } from "../auth/rows.ts";
import { addressNetwork } from "../http/client-address.ts";
import type { Decision } from "./windows.ts";

/** Look-ups under way at once: fewer than the pool has connections, so that known keys are looked up again meanwhile. */
const maxUnderWay = 8;

/** Look-ups that wait for a turn: each keeps a request, and a client may open many and leave. */
const maxWaiting = 10_000;

/** A look-up that waits for its turn. */
interface Waiting {
  readonly begin: () => Promise<unknown>;
  readonly reject: (error: unknown) => void;
}

/** What waits in a network, by address block. The block whose turn is next comes first. */
interface Network {
  readonly blocks: Map<string, Waiting[]>;
  waiting: number;
}

/**
 * Stands between unknown keys and the store. A bounded number of look-ups is under way, and the networks that wait take
 * turns, as do the address blocks of each network. So a flood of made-up keys from one network delays a good key from
 * elsewhere by a turn.
 *
 * An address block has at most as many look-ups under way as its limit has left, so that a flood costs the store hardly
 * more look-ups than the limit. A block with nothing left has none.
 */
export class LookUpLimit {
  readonly #currentLimits: (block: string) => Decision;
  /** The network whose turn is next comes first. */
  readonly #networks = new Map<string, Network>();
  /** How many look-ups of each address block are under way. */
  readonly #underWay = new Map<string, number>();
  #total = 0;

  /** @param currentLimits the one window of an address block, without a charge */
  constructor(currentLimits: (block: string) => Decision) {
    this.#currentLimits = currentLimits;
  }

  /**
   * @param block an address as `addressBlock` makes it
   * @throws AddressExhaustedError, Error when too many wait, or what a look-up throws that was under way meanwhile
   */
  run<T>(block: string, lookUp: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const fail = (error: unknown) => {
        reject(error);
        if (!(error instanceof UnusablePlanError)) this.#failWaiting(error);
      };
      const begin = () => lookUp().then(resolve, fail);
      this.#wait(block, { begin, reject });
      this.#beginNext();
    });
  }

  #wait(block: string, look: Waiting): void {
    const name = addressNetwork(block);
    const network = this.#networks.get(name) ?? { blocks: new Map<string, Waiting[]>(), waiting: 0 };
    // An equal share for each: a network that floods cannot keep another from waiting.
    if (network.waiting >= maxWaiting / Math.max(1, this.#networks.size)) {
      look.reject(new Error("too many unknown keys wait to be looked up"));
      return;
    }
    this.#networks.set(name, network);
    network.waiting += 1;
    const queue = network.blocks.get(block);
    if (queue) queue.push(look);
    else network.blocks.set(block, [look]);
  }

  #beginNext(): void {
    while (this.#total < maxUnderWay) {
      const next = this.#takeNext();
      if (!next) return;
      const { block, look } = next;
      this.#count(block, 1);
      // A turn later, so that what was found out about this key has been charged to its address.
      void look.begin().finally(() => setImmediate(() => this.#end(block)));
    }
  }

  #end(block: string): void {
    this.#count(block, -1);
    this.#beginNext();
  }

  /** Takes what is next, and puts its network and its block last. Refuses what waits in a block with nothing left. */
  #takeNext(): { block: string; look: Waiting } | undefined {
    for (const [name, network] of this.#networks) {
      for (const [block, queue] of network.blocks) {
        const decision = this.#currentLimits(block);
        const isExhausted = !decision.admitted;
        if (!isExhausted && (this.#underWay.get(block) ?? 0) >= decision.windows[0]!.remaining) continue;
        const taken = queue.splice(0, isExhausted ? queue.length : 1);
        network.waiting -= taken.length;
        network.blocks.delete(block);
        if (queue.length > 0) network.blocks.set(block, queue);
        if (network.waiting === 0 || !isExhausted) this.#networks.delete(name);
        if (network.waiting > 0) this.#networks.set(name, network);
        if (!isExhausted) return { block, look: taken[0]! };
        for (const { reject } of taken) reject(new AddressExhaustedError(decision));
      }
    }
    return undefined;
  }

  #count(block: string, change: 1 | -1): void {
    this.#total += change;
    const count = (this.#underWay.get(block) ?? 0) + change;
    if (count === 0) this.#underWay.delete(block);
    else this.#underWay.set(block, count);
  }

  /** A store that cannot be asked has no answer for those that wait either. */
  #failWaiting(error: unknown): void {
    const waiting = [...this.#networks.values()].flatMap(({ blocks }) => [...blocks.values()].flat());
    this.#networks.clear();
    for (const look of waiting) look.reject(error);
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
