/** Judges when requests that wait for a change are answered. */
import type { History } from "./oracle.ts";

/** How late a change may wake a request that waits for it. */
const wakeMs = 1_200;

/** Timers may end so much early: Node cuts the fraction off their length, and counts from a whole millisecond. */
const earlyMs = 2;

/** @returns the requests that were woken without a change, or not woken in time by one, in a run without faults */
export function judgeWaits({ commits, reads }: Pick<History, "commits" | "reads">): string[] {
  return reads.flatMap(({ kind, callMs, returnMs, waitMs = 0, petIds, tag, status, since }) => {
    if (waitMs === 0) return [];
    const what = `${kind} of ${callMs.toFixed(0)}, answered at ${returnMs.toFixed(0)} with ${status} ${tag}`;
    const isUnchanged = status === 304 || tag === since;
    if (isUnchanged && returnMs < callMs + waitMs - earlyMs) return [`${what}: woken without a change`];
    const change = commits.find(({ atMs, rows }) => {
      return atMs > callMs && rows.some(({ petId }) => kind !== "entry" || petId === petIds![0]);
    });
    if (!change || returnMs < change.atMs + wakeMs) return [];
    return [`${what}: not woken by the change at ${change.atMs.toFixed(0)}`];
  });
}
