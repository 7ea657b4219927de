/** The latest removals of entries, for readers of changes: an entry that is gone has no revision in the list. */

/** The removal of an entry. */
export interface Removal {
  readonly petId: bigint;
  /** The revision that removed it. */
  readonly revision: bigint;
}

/** Knows every removal after one revision up to that of the list. */
export class Removals {
  #from: bigint;
  /** In the order of revisions. */
  #known: Removal[] = [];

  /** @param from the revision after which removals will be added */
  constructor(from: bigint) {
    this.#from = from;
  }

  /** All removals after this revision are known. */
  get from(): bigint {
    return this.#from;
  }

  /**
   * Adds what was removed up to a revision. Too many are all forgotten, because the service can be asked for them.
   *
   * @param max gives how many may be kept
   */
  add(removed: readonly Removal[], revision: bigint, max: () => number): void {
    if (removed.length === 0) return;
    for (const removal of removed.toSorted(byRevision)) this.#known.push(removal);
    if (this.#known.length <= max()) return;
    this.#from = revision;
    this.#known = [];
  }

  /** Adds the removals after an older revision. Those among them that are known already are left out. */
  addOlder(from: bigint, removed: readonly Removal[]): void {
    const older = removed.filter(({ revision }) => revision <= this.#from).toSorted(byRevision);
    this.#known = [...older, ...this.#known];
    this.#from = from;
  }

  /** The entries that were removed after a revision, at or after `from`; some of them may be there again. */
  after(revision: bigint): ReadonlySet<bigint> {
    let first = this.#known.length;
    while (first > 0 && this.#known[first - 1]!.revision > revision) first--;
    return new Set(this.#known.slice(first).map(({ petId }) => petId));
  }
}

function byRevision(a: Removal, b: Removal): number {
  return a.revision < b.revision ? -1 : a.revision > b.revision ? 1 : 0;
}
