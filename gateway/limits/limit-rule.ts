/**
 * The rule of the limits that gateways share, in TypeScript: windows that begin and end by the clock, and counts that
 * only grow. It reads no clock and does no I/O. `limit-rule-lua.ts` says its `mergeReport` again for Redis, and the
 * test beside that file compares the two.
 */
import { crc32 } from "node:zlib";

/** The lengths of the windows of an account in ms: a minute and a day. */
export const lengthsMs = [60_000, 86_400_000] as const;

/**
 * Where the windows of an account begin: its days begin this long before those of UTC. It differs between accounts, so
 * that they do not all begin at once. A minute begins with each day, because both have the same phase.
 *
 * @returns milliseconds, in whole seconds
 */
export function phaseMsOf(accountId: string): number {
  return (crc32(accountId) % 86_400) * 1_000;
}

/** The number of the window that runs now. A count with any other index is over, also when the clock was set back. */
export function indexAt(nowMs: number, phaseMs: number, lengthMs: number): number {
  return Math.floor((nowMs + phaseMs) / lengthMs);
}

/** What a gateway knows of one window of an account. All numbers but `alone` only grow while the window runs. */
export interface Count {
  index: number;
  /** Requests that this gateway has admitted. */
  own: number;
  /** Those of `own` that were in no call to Redis, so that no other gateway has heard of them. */
  alone: number;
  /** Requests that Redis has charged to this gateway, as far as it has heard. */
  synced: number;
  /** Requests that Redis has charged to all other gateways, as far as it has heard. */
  others: number;
}

/**
 * What a gateway may still admit of a limit. With Redis: what `mergeReport` would admit. Alone: this gateway's share of
 * what was left when it last heard. What it has admitted since is subtracted.
 *
 * @param sharers how many share what is left: 1 with Redis
 */
export function leftOf({ own, synced, others }: Readonly<Count>, limit: number, sharers: number): number {
  return Math.ceil((limit - others - synced) / sharers) + synced - own;
}

/** Begins a count again when its window is over. */
export function renew(count: Count, index: number): void {
  if (count.index === index) return;
  count.index = index;
  count.own = 0;
  count.alone = 0;
  count.synced = 0;
  count.others = 0;
}

/** Notes what Redis has charged in one window, and how many requests it has admitted. */
export function learn(count: Count, index: number, admittedCount: number, { others, charged }: Charges): void {
  renew(count, index);
  count.own += admittedCount;
  count.alone = 0;
  count.synced = Math.max(count.synced, charged);
  count.others = Math.max(count.others, others);
}

/** What Redis keeps of one window of an account. */
interface Total {
  readonly index: number;
  /** The highest total that Redis has told any gateway. */
  readonly highest: number;
  /**
   * The sum of what is charged to each gateway. After a loss of data it lacks the gateways that have not spoken since.
   */
  readonly sum: number;
}

/** What Redis keeps of an account: a total and the charges of each gateway, for each window. */
export interface KeptCounts {
  totals: readonly Total[];
  readonly chargesByGateway: Map<string, readonly { readonly index: number; readonly charged: number }[]>;
}

/** What one gateway reports about an account, and how many more requests it wants to admit. */
export interface CountReport {
  /** The name of these counts: another one for each account, and after each start of the gateway. */
  readonly countsName: string;
  readonly wanted: number;
  readonly limits: readonly number[];
  readonly counts: readonly Readonly<Count>[];
}

/** Requests that are charged in one window to all other gateways, and to the one that has asked. */
export interface Charges {
  readonly others: number;
  readonly charged: number;
}

/** What Redis answers: how many of the wanted requests it admits, and the charges in each window. */
export interface ChargeAnswer {
  readonly admittedCount: number;
  readonly charges: readonly Charges[];
}

/**
 * Merges a report into what Redis keeps and admits as many of the wanted requests as all windows have left.
 * Gateways run the same in Lua, on Redis (`limit-rule-lua.ts`); this form is for tests and simulations. Change both.
 *
 * A report may come twice, late, or to a Redis that has lost everything. Credit: requests that Redis charged to a
 * gateway but whose answer was lost. They are admitted first.
 *
 * The total is the largest of three numbers, each of which lacks something after a loss of data. `newSum` lacks the
 * gateways that have not spoken since. `others + known` is what this gateway last heard of the others, with its own.
 * `highest` is the highest total that Redis has told any gateway, even a gateway that is gone. It lacks what this
 * gateway has admitted without a call to Redis, so `alone` is added, as far as `charged` does not have it from an
 * earlier report. All else that this gateway has admitted may be in `highest` already: another gateway may have heard
 * of a charge whose answer to this one was lost. Adding it would count it twice.
 *
 * @param indexes of the windows that run now
 */
export function mergeReport(kept: KeptCounts, indexes: readonly number[], report: CountReport): ChargeAnswer {
  const { countsName, wanted, limits, counts } = report;
  const isNew = kept.totals.at(-1)?.index !== indexes.at(-1);
  const totals = isNew ? [] : kept.totals;
  const charges = isNew ? [] : (kept.chargesByGateway.get(countsName) ?? []);
  let admittedCount = wanted;
  const merged = indexes.map((index, w) => {
    const running = <T extends { readonly index: number }>(value: T | undefined) =>
      value?.index === index ? value : null;
    const { highest = 0, sum = 0 } = running(totals[w]) ?? {};
    const { charged = 0 } = running(charges[w]) ?? {};
    const { own = 0, alone = 0, synced = 0, others = 0 } = running(counts[w]) ?? {};
    const known = Math.max(charged, own, synced);
    const newSum = sum + known - charged;
    const total = Math.max(highest + Math.min(alone, known - charged), others + known, newSum);
    const credit = known - own;
    admittedCount = Math.max(0, Math.min(admittedCount, credit + limits[w]! - total));
    return { index, before: { highest, charged }, own, known, sum: newSum, total };
  });
  let isChanged = false;
  const after = merged.map(({ index, before, own, known, sum, total }) => {
    const grown = Math.max(0, own + admittedCount - known);
    if (total + grown > before.highest || known + grown > before.charged) isChanged = true;
    return { index, highest: total + grown, sum: sum + grown, charged: known + grown };
  });
  if (isChanged) {
    if (isNew) kept.chargesByGateway.clear();
    kept.totals = after.map(({ index, highest, sum }) => ({ index, highest, sum }));
    kept.chargesByGateway.set(
      countsName,
      after.map(({ index, charged }) => ({ index, charged })),
    );
  }
  return { admittedCount, charges: after.map(({ highest, charged }) => ({ others: highest - charged, charged })) };
}
