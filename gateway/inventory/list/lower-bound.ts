/** Finds a place in a sorted sequence by halving. */

/** The first index from `low` up to `high` at which `isBefore` is false. It has to be true at all those before. */
export function lowerBound(low: number, high: number, isBefore: (index: number) => boolean): number {
  let [first, end] = [low, high];
  while (first < end) {
    const middle = (first + end) >>> 1;
    if (isBefore(middle)) first = middle + 1;
    else end = middle;
  }
  return first;
}
