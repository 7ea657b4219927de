/** Divides work among turns of the event loop, so that other work comes in between. */
import { setImmediate as nextTurn } from "node:timers/promises";

/** Does work for each item, for at most `perTurn` items in one turn. */
export async function inTurns<T>(items: readonly T[], perTurn: number, work: (item: T) => void): Promise<void> {
  for (let i = 0; i < items.length; i++) {
    if (i > 0 && i % perTurn === 0) await nextTurn();
    work(items[i]!);
  }
}
