/** Checks what must always hold, in production too: a state that must never be is refused and counted, not served. */

/** Failures of this process by text. They are kept here because pure code, which has no registry, checks as well. */
const failures = new Map<string, number>();

/**
 * Refuses to go on in a state that must never be. The failure is counted in `invariant_failures_total`. Its error is
 * thrown, and logged where the other faults of the same work are.
 *
 * @param text says what holds. It is a label of the metric: a constant, without values
 * @throws InvariantError
 */
export function invariant(condition: boolean, text: string): asserts condition {
  if (condition) return;
  failures.set(text, (failures.get(text) ?? 0) + 1);
  throw new InvariantError(text);
}

/** Failures of this process so far, by text. For metrics. */
export function invariantFailures(): ReadonlyMap<string, number> {
  return failures;
}

/** Something that always holds did not hold. */
export class InvariantError extends Error {
  constructor(text: string) {
    super(`this must always hold, and did not: ${text}`);
    this.name = "InvariantError";
  }
}
