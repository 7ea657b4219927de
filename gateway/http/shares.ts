/** Shares a fixed number of places out between owners, so that none of them keeps all others out. */

/**
 * Counts places by owner. An owner may have at most half of what the others have left: the first one gets half of all
 * places, a second one half of the rest, and as long as a place is left an owner without one gets it.
 */
export class Shares {
  readonly #max: number;
  readonly #taken = new Map<string, number>();
  #total = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Takes a place. @returns false when the owner has its share already, or no place is left */
  take(owner: string): boolean {
    const own = this.#taken.get(owner) ?? 0;
    const othersLeft = this.#max - (this.#total - own);
    if (own >= Math.ceil(othersLeft / 2)) return false;
    this.#taken.set(owner, own + 1);
    this.#total += 1;
    return true;
  }

  /** Gives a place back that `take` gave. */
  release(owner: string): void {
    const own = this.#taken.get(owner)! - 1;
    if (own === 0) this.#taken.delete(owner);
    else this.#taken.set(owner, own);
    this.#total -= 1;
  }
}
