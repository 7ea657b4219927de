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

  /** The places that are taken, by all owners together. */
  get taken(): number {
    return this.#total;
  }

  /** How many more places an owner may take. */
  left(owner: string): number {
    const own = this.#taken.get(owner) ?? 0;
    const othersLeft = this.#max - (this.#total - own);
    return Math.max(0, Math.ceil(othersLeft / 2) - own);
  }

  /** Takes places. @returns false when the owner's share has not that many places left */
  take(owner: string, places = 1): boolean {
    if (places > this.left(owner)) return false;
    this.#add(owner, places);
    return true;
  }

  /** Gives places back that `take` gave. */
  release(owner: string, places = 1): void {
    this.#add(owner, -places);
  }

  #add(owner: string, places: number): void {
    const own = (this.#taken.get(owner) ?? 0) + places;
    if (own === 0) this.#taken.delete(owner);
    else this.#taken.set(owner, own);
    this.#total += places;
  }
}
