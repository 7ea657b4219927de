/** Gives other work a turn of the event loop in between. */
import { setImmediate as nextTurn } from "node:timers/promises";

/** Does work for each item, for so many in one turn. */
export async function inTurns<T>(items: readonly T[], perTurn: number, work: (item: T) => void): Promise<void> {
  for (let i = 0; i < items.length; i++) {
    if (i > 0 && i % perTurn === 0) await nextTurn();
    work(items[i]!);
  }
}
