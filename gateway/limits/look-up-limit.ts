/** Bounds the look-ups of unknown keys, and shares them out between the addresses that they come from. */
import { UnusablePlanError } from "../auth/rows.ts";
import { addressNetwork } from "../http/client-address.ts";
import type { Decision } from "./windows.ts";

/** Look-ups under way at once: fewer than the pool has connections, so that known keys can be looked up meanwhile. */
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
  #waiting = 0;

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
    this.#networks.set(name, network);
    const queue = network.blocks.get(block) ?? [];
    network.blocks.set(block, queue);
    queue.push(look);
    network.waiting += 1;
    this.#waiting += 1;
    if (this.#waiting > maxWaiting) this.#refuseOne(name, network, block);
  }

  /**
   * Refuses the latest look-up of a large block in a large network, so that a flood hits itself. It searches for the
   * largest ones, which takes time, only when the newcomer's own network or block is below the average.
   */
  #refuseOne(name: string, network: Network, block: string): void {
    const isSmall = network.waiting < this.#waiting / this.#networks.size;
    const [hitName, hit] = isSmall ? largest(this.#networks, ({ waiting }) => waiting) : [name, network];
    const own = hit.blocks.get(block);
    const isOwn = own !== undefined && own.length >= hit.waiting / hit.blocks.size;
    const [hitBlock, queue] = isOwn ? [block, own] : largest(hit.blocks, ({ length }) => length);
    this.#forget(hitName, hit, hitBlock, queue.splice(-1), new Error("too many unknown keys wait to be looked up"));
  }

  #beginNext(): void {
    while (this.#total < maxUnderWay) {
      const next = this.#takeNext();
      if (!next) return;
      const { block, look } = next;
      this.#count(block, 1);
      // Ends the look-up a turn of the event loop later, after its result has been charged to the address.
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
        if (!decision.admitted) {
          this.#forget(name, network, block, queue.splice(0), new AddressExhaustedError(decision));
        } else if ((this.#underWay.get(block) ?? 0) < decision.windows[0]!.remaining) {
          const [look] = queue.splice(0, 1) as [Waiting];
          this.#forget(name, network, block, [look]);
          if (queue.length > 0) setLast(network.blocks, block, queue);
          if (network.waiting > 0) setLast(this.#networks, name, network);
          return { block, look };
        }
      }
    }
    return undefined;
  }

  /** Notes that these look-ups, which were taken out of their queue, wait no longer. @param error refuses them */
  #forget(name: string, network: Network, block: string, looks: readonly Waiting[], error?: Error): void {
    this.#waiting -= looks.length;
    network.waiting -= looks.length;
    if (network.blocks.get(block)?.length === 0) network.blocks.delete(block);
    if (network.waiting === 0) this.#networks.delete(name);
    if (error) for (const { reject } of looks) reject(error);
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
    this.#waiting = 0;
    for (const look of waiting) look.reject(error);
  }
}

/** Sets an entry after all others of a map. */
function setLast<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key);
  map.set(key, value);
}

/** The entry with the largest value; of equals the last one. */
function largest<T>(entries: Iterable<[string, T]>, size: (value: T) => number): [string, T] {
  return [...entries].reduce((most, next) => (size(next[1]) >= size(most[1]) ? next : most));
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
