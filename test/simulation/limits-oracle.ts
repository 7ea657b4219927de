/** Judges the limits of an account by what became of its requests. */
import { indexAt, lengthsMs, phaseMsOf } from "../../gateway/limits/limit-rule.ts";
import type { LimitedRequest } from "./caller-world.ts";
import type { Plan } from "./plan.ts";
import { unixMsAt } from "./virtual-time.ts";

export interface LimitRules {
  /** Requests in a minute and in a day. */
  readonly limits: readonly number[];
  /** Unix milliseconds of a moment of the run, by the clock of Redis. */
  readonly unixMs: (atMs: number) => number;
  readonly phaseMs: number;
  /** Gateways that decide alone, each about its share. */
  readonly alone: number;
  /** Faults of Redis and ends of gateways: each may give one more allowance. */
  readonly faults: number;
  /** How much later than Redis a gateway may take a window for over that it knows to be spent, in milliseconds. */
  readonly lateMs: number;
}

/** By how much the end that a caller is told may differ from that of its window, besides a whole second. */
const toldMs = 200;

/** The number of refusals that brings a ban. */
const refusalsOfBan = 30;

/** The length of the first ban of a family of keys. */
const firstBanSeconds = 300;

/** By then each gateway has refused something, and counts what it refuses. */
const tellingMs = 3_000;

/** Refusals that none counts, within a second after the begin of a minute. */
const uncounted = 60;

/** @returns when a minute of an account ends that runs at a time of the run */
export function minuteEndMs(atMs: number, account: string): number {
  return atMs + restMsOf(unixMsAt(atMs), phaseMsOf(account), lengthsMs[0]);
}

/** How long a window still runs. */
function restMsOf(unixMs: number, phaseMs: number, lengthMs: number): number {
  return lengthMs - ((unixMs + phaseMs) % lengthMs);
}

/** What the faults of a plan allow of its limits. */
export function limitRules({ limit, limitPerDay, faults, hasRedis, gateways }: Plan, account: string): LimitRules {
  const concerned = faults.filter(({ kind }) => /Redis|a gateway$|a clock|keys|pepper/.test(kind));
  // A clock of Redis that is set back begins the window before again, and then this one.
  const clocks = faults.filter(({ kind }) => kind === "set a clock");
  return {
    limits: [limit, limitPerDay],
    phaseMs: phaseMsOf(account),
    unixMs: unixMsAt,
    alone: hasRedis ? 0 : gateways,
    faults: concerned.length + clocks.length,
    lateMs: faults.some(({ kind }) => kind === "slew the clocks") ? 150 : 0,
  };
}

/** A request with the windows that it may belong to: for each length, those of its begin and its end. */
interface Placed extends LimitedRequest {
  readonly windows: readonly (readonly [from: number, to: number])[];
  /** Whether it was admitted, in windows that are known. */
  readonly isAdmitted: boolean;
  /** Whether it may have been admitted. */
  readonly mayCount: boolean;
}

/** @returns what contradicts the limits */
export function judgeLimits(requests: readonly LimitedRequest[], rules: LimitRules): string[] {
  const { limits, unixMs, phaseMs, alone, faults, lateMs } = rules;
  const isExact = alone === 0 && faults === 0;
  const placed = requests.map((request): Placed => {
    const { callMs, returnMs, status } = request;
    const windows = lengthsMs.map((lengthMs) => {
      return [
        indexAt(unixMs(callMs - lateMs), phaseMs, lengthMs),
        indexAt(unixMs(returnMs), phaseMs, lengthMs),
      ] as const;
    });
    const isAdmitted = status !== 0 && status !== 429 && status !== 503 && windows.every(([from, to]) => from === to);
    return { ...request, windows, isAdmitted, mayCount: status !== 429 };
  });
  /** How many others of the window of a request were admitted before it, and how many may have been. */
  const before = (request: Placed, w: number) => {
    const window = request.windows[w]![0];
    let [least, most] = [0, 0];
    for (const other of placed) {
      if (other === request || !other.mayCount || !other.windows[w]!.includes(window)) continue;
      if (other.isAdmitted && other.returnMs <= request.callMs) least += 1;
      if (other.callMs <= request.returnMs) most += 1;
    }
    return { least, most };
  };
  const violations: string[] = [];
  for (const request of isExact ? placed : []) {
    const { callMs, status, code, left, waitSeconds, windows, isAdmitted } = request;
    const what = `a request of ${callMs.toFixed(0)}`;
    if (isAdmitted && status === 200) {
      const { least, most } = before(request, 0);
      const mayBeLeft = left < limits[0]! - least && left >= limits[0]! - most - 1;
      if (!mayBeLeft) violations.push(`${what} left ${left} after ${least} to ${most} of ${limits[0]}`);
    }
    if (code !== "rate_limit_exceeded" || windows.some(([from, to]) => from !== to)) continue;
    const spent = lengthsMs.filter((_, w) => before(request, w).most >= limits[w]!);
    if (spent.length === 0) violations.push(`${what} got 429 after ${before(request, 0).most} of ${limits[0]}`);
    if (spent.length > 0 && !spent.some((lengthMs) => isToldEnd(request, lengthMs, rules))) {
      violations.push(`${what} was told to wait ${waitSeconds} s, for another time than the end of its window`);
    }
  }
  for (const [w, limit] of limits.entries()) {
    const admitted = new Map<number, number>();
    for (const { isAdmitted, windows } of placed) {
      if (isAdmitted) admitted.set(windows[w]![0], (admitted.get(windows[w]![0]) ?? 0) + 1);
    }
    const most = limit * (1 + faults) + alone; // shares are rounded up
    for (const [, count] of admitted) {
      if (count > most) violations.push(`${count} requests of a window were admitted, more than ${most}`);
    }
  }
  return [...violations, ...judgeBans(requests, rules)];
}

/** Whether a refusal, which was given between the call and the return, tells the end of its window in whole seconds. */
function isToldEnd(
  { callMs, returnMs, waitSeconds }: LimitedRequest,
  lengthMs: number,
  { unixMs, phaseMs }: LimitRules,
): boolean {
  const restMs = (atMs: number) => restMsOf(unixMs(atMs), phaseMs, lengthMs);
  const waitMs = 1_000 * waitSeconds;
  return waitMs >= restMs(returnMs) - toldMs && waitMs <= restMs(callMs) + 1_000 + toldMs;
}

/** @returns what contradicts the bans, which come after many refusals, and only then */
function judgeBans(requests: readonly LimitedRequest[], rules: LimitRules): string[] {
  const { alone, faults } = rules;
  const refusals = requests.filter(({ code }) => code === "rate_limit_exceeded");
  const bans = requests.filter(({ code }) => code === "api_key_banned");
  const early = refusals.filter(({ callMs }) => bans.every((ban) => callMs < ban.returnMs)).length;
  const violations = bans.length > 0 && early < refusalsOfBan ? [`a ban after ${early} refusals`] : [];
  if (faults > 0) return violations;
  for (const ban of bans) {
    const { waitSeconds } = ban;
    const isFirst = waitSeconds >= firstBanSeconds - lengthsMs[0] / 1_000 && waitSeconds <= firstBanSeconds + 1;
    // It ends no sooner than a day of which nothing is left.
    if (!isFirst && !isToldEnd(ban, lengthsMs[1], rules)) violations.push(`a ban for ${waitSeconds} s`);
  }
  const counted = refusals.filter(({ callMs }) => callMs > refusals[0]!.callMs + tellingMs).length;
  const most = refusalsOfBan * Math.max(alone, 1) + uncounted;
  return counted > most ? [...violations, `no ban after ${counted} refusals`] : violations;
}
