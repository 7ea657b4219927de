/** Judges when requests that wait for a change are answered. */
import type { History } from "./oracle.ts";

/** How late a change may wake a request that waits for it. */
const wakeMs = 1_200;

/** A check that finds more changes is cut off: `substitutes.ts`. */
const changesAtOnce = 3;

/** Timers may end so much early: Node cuts the fraction off their length, and counts from a whole millisecond. */
const earlyMs = 2;

/** @returns the requests that were woken without a change, or not woken in time by one, in a run without faults */
export function judgeWaits({ commits, reads }: Pick<History, "commits" | "reads">): string[] {
  return reads.flatMap(({ kind, callMs, returnMs, waitMs = 0, petIds, tag, status, since }) => {
    if (waitMs === 0) return [];
    const what = `${kind} of ${callMs.toFixed(0)}, answered at ${returnMs.toFixed(0)} with ${status} ${tag}`;
    const isUnchanged = status === 304 || tag === since;
    const isEarly = returnMs < callMs + waitMs - earlyMs;
    // A check that finds so many changes that it is cut off wakes all.
    const latest = commits.filter(({ atMs }) => atMs > returnMs - wakeMs && atMs <= returnMs);
    const isCutOff = latest.reduce((sum, { rows }) => sum + rows.length, 0) > changesAtOnce;
    if (isUnchanged && isEarly && !isCutOff) return [`${what}: woken without a change`];
    const change = commits.find(({ atMs, rows }) => {
      return atMs > callMs && rows.some(({ petId }) => kind !== "entry" || petId === petIds![0]);
    });
    if (!change || returnMs < change.atMs + wakeMs) return [];
    return [`${what}: not woken by the change at ${change.atMs.toFixed(0)}`];
  });
}
