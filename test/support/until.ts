import { setTimeout as delay } from "node:timers/promises";

export interface UntilOptions {
  readonly withinMs?: number;
  readonly everyMs?: number;
}

/** Polls until `check` holds, for states without an event. @throws Error when it does not hold in time */
export async function until(
  check: () => Promise<boolean> | boolean,
  { withinMs = 10_000, everyMs = 10 }: UntilOptions = {},
): Promise<void> {
  const deadline = Date.now() + withinMs;
  while (!(await check())) {
    if (Date.now() > deadline) throw new Error(`did not come true in ${withinMs} ms: ${check}`);
    await delay(everyMs);
  }
}
