/** Values that there may be at once. */
export const maxSlots = 10_000;

/** More than that, so that the search for a free place is short. */
const capacity = 16_384;

/**
 * Values that wait to be asked for by the id that they got, each once: a table of fixed size.
 *
 * It is no Map, because V8 links every table that a Map has outgrown to the next: once one of them has grown old, all
 * that comes into the Map after it lives until the next full collection, and is copied until then.
 */
export class Slots<T> {
  readonly #values = new Array<T | undefined>(capacity);
  /** The id of the value at each place; 0 where there is none. */
  readonly #ids = new Float64Array(capacity);
  /** No value has a lower id. */
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

  /** The ids of the values, the oldest first. Values may be taken out meanwhile. */
  *ids(): Generator<number> {
    while (this.#oldestId <= this.#lastId && this.get(this.#oldestId) === undefined) this.#oldestId += 1;
    for (let id = this.#oldestId; id <= this.#lastId; id++) if (this.get(id) !== undefined) yield id;
  }
}
