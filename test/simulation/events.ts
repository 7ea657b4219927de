/** What a run has met: a run that never meets an event proves nothing about it. */

const counts = new Map<string, number>();

/** Notes that an event has happened. */
export function meet(event: string): void {
  counts.set(event, (counts.get(event) ?? 0) + 1);
}

/** Gives what was met since the last call, and begins again. */
export function takeEvents(): Record<string, number> {
  const met = Object.fromEntries(counts);
  counts.clear();
  return met;
}
