/** Keeps values under numbers until they are taken. */

/** Maximum values at once. */
export const maxSlots = 10_000;

/** More places than values, so that a free one is found quickly. */
const capacity = 16_384;

/**
 * A table of fixed size for values that are each taken once, by the id they got.
 *
 * It replaces a Map for the garbage collector's sake. V8 links each internal table that a Map has outgrown to the next
 * one. As soon as one of them is in the old generation, every later value lives until the next full collection.
 */
export class Slots<T> {
  readonly #values = new Array<T | undefined>(capacity);
  /** The id of the value at each place; 0 where there is none. */
  readonly #ids = new Float64Array(capacity);
  /** No value has an id below this one. */
  #oldestId = 1;
  #lastId = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /**
   * @returns the id of the value, higher than those before it
   * @throws RangeError when there are `maxSlots`
   */
  add(value: T): number {
    if (this.#size >= maxSlots) throw new RangeError("all slots are taken");
    do this.#lastId += 1;
    while (this.#ids[this.#lastId % capacity] !== 0);
    this.#ids[this.#lastId % capacity] = this.#lastId;
    this.#values[this.#lastId % capacity] = value;
    this.#size += 1;
    return this.#lastId;
  }

  /** @returns undefined when no value with this id is waiting */
  get(id: number): T | undefined {
    return this.#ids[id % capacity] === id ? this.#values[id % capacity] : undefined;
  }

  /** Takes a value out. @returns undefined when no value with this id is waiting */
  take(id: number): T | undefined {
    const value = this.get(id);
    if (value === undefined) return undefined;
    this.#ids[id % capacity] = 0;
    this.#values[id % capacity] = undefined;
    this.#size -= 1;
    return value;
  }

  /** The ids of the values, the oldest first. Values may be taken during the iteration. */
  *ids(): Generator<number> {
    while (this.#oldestId <= this.#lastId && this.get(this.#oldestId) === undefined) this.#oldestId += 1;
    for (let id = this.#oldestId; id <= this.#lastId; id++) if (this.get(id) !== undefined) yield id;
  }
}
