/** What a run has met: a run that never meets an event proves nothing about it. */
import { faultKinds } from "./plan.ts";

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

/** What a thousand seeds have to meet at least ten times, beside every kind of fault. */
const expectedEvents = [
  "bytes that came late",
  "a connection that the other side has ended",
  "a wait for a lock",
  "a wait for a lock that took too long",
  "a lock out of order",
  "a statement of a client that has left",
  "a transaction that the database ended for its silence",
  "a deadlock at COMMIT",
  "a lock on one of several servers",
  "a transaction that another server has undone",
  "a session lost before COMMIT",
  "a session lost after COMMIT",
  "a lock on an old primary",
  "a read of an old primary",
  "a call that a leaving service refused",
  "a question after the end of its stream",
  "a lost connection that a ping found",
  "calls on a connection that takes no more",
  "a thaw with packets that had arrived",
  "a repeat after a lost answer",
  "a repeat got its first answer",
  "a repeat a minute later",
  "a key that another account has used",
  "a change that is repeated",
  "a break of which one side knows",
  "refusals of a spent account",
  "a request to a gateway that leaves",
  "a wait that a change ended",
  "a wait without a change",
  "a wait that a restore ended",
  "a break of a watch",
  "a reset of a watch",
  "a request with a revoked key",
  "a rotated key",
  "a ban",
  "a further request on a connection",
  "a request behind another one",
  "an account's use",
  "a guard of an account that refused",
  "an address that was refused",
  "a repeat of which half is forgotten",
  "a request id that is used again",
  "a page of the list",
  "a way that has got slow",
  "an invalidation of a key",
  "a request that took longer than a second",
  "answer broken",
  "answer left",
  "answer 304",
  "answer 404",
  "answer 409",
  "answer 410",
  "answer 412",
  "answer 422",
  "answer 429",
  "answer 503",
  "answer 504",
  "internal adjust unknown",
  "internal create refused",
  "the reason OUTCOME_UNKNOWN",
  "the reason STOCK_UNAVAILABLE",
  "the reason INSUFFICIENT_STOCK",
] as const;

type Events = Readonly<Record<string, number>>;

/** How often each expected event and each kind of fault was met, the rarest first, and which were met too seldom. */
export function judgeEvents(results: readonly { readonly events: Events }[]): {
  readonly met: Events;
  readonly seldom: Events;
} {
  const many = (name: string) => results.reduce((sum, { events }) => sum + (events[name] ?? 0), 0);
  const all = [...expectedEvents, ...Object.keys(faultKinds)].map((name) => [name, many(name)] as const);
  const met = all.toSorted(([, a], [, b]) => a - b);
  const least = (10 * results.length) / 1_000;
  return { met: Object.fromEntries(met), seldom: Object.fromEntries(met.filter(([, count]) => count < least)) };
}
