/** Helpers that depend on how Node's event loop runs: a wait for an answer, and work that pauses for others. */
import { setImmediate as nextTurn } from "node:timers/promises";

/**
 * Waits for an answer. One that arrived while this thread was busy is in time, although its timer fires first.
 *
 * @param lateError makes the error of an answer that does not come in time
 * @throws what the answer rejects with; `lateError()` when there is none in time
 */
export async function inTime<T>(answer: Promise<T>, timeoutMs: number, lateError: () => Error): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  // Node reads from its sockets between a timer and an immediate.
  const timer = setTimeout(() => setImmediate(() => reject(lateError())), timeoutMs);
  try {
    return await Promise.race([answer, promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Does work for each item, for at most `perTurn` items in one turn. */
export async function inTurns<T>(items: readonly T[], perTurn: number, work: (item: T) => void): Promise<void> {
  for (let i = 0; i < items.length; i++) {
    if (i > 0 && i % perTurn === 0) await nextTurn();
    work(items[i]!);
  }
}
