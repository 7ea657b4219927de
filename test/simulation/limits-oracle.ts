/** Judges the limits of an account by what became of its requests. */
import { phaseMsOf } from "../../gateway/limits/limit-rule.ts";
import type { LimitedRequest } from "./caller-world.ts";
import type { Plan } from "./plan.ts";
import { unixMsAt } from "./virtual-time.ts";

export interface LimitRules {
  /** Requests in a minute. */
  readonly limit: number;
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

const minuteMs = 60_000;

/** By how much the end that a caller is told may differ from that of its window, the way of the answer included. */
const toldMs = 3_000;

/** The number of refusals that brings a ban. */
const refusalsOfBan = 30;

/** The length of the first ban of a family of keys. */
const firstBanSeconds = 300;

/** By then each gateway has refused something, and counts what it refuses. */
const tellingMs = 3_000;

/** Refusals that none counts, within a second after the begin of a minute. */
const uncounted = 40;

/** What the faults of a plan allow of its limits. */
export function limitRules({ limit, faults, hasRedis, gateways }: Plan, account: string): LimitRules {
  const concerned = faults.filter(({ kind }) => /Redis|a gateway$|a clock|keys|pepper/.test(kind));
  // A clock of Redis that is set back begins the window before again, and then this one.
  const clocks = faults.filter(({ kind }) => kind === "set a clock");
  return {
    limit,
    phaseMs: phaseMsOf(account),
    unixMs: unixMsAt,
    alone: hasRedis ? 0 : gateways,
    faults: concerned.length + clocks.length,
    lateMs: faults.some(({ kind }) => kind === "slew the clocks") ? 150 : 0,
  };
}

/** @returns what contradicts the limits */
export function judgeLimits(requests: readonly LimitedRequest[], rules: LimitRules): string[] {
  const { limit, unixMs, phaseMs, alone, faults, lateMs } = rules;
  const isExact = alone === 0 && faults === 0;
  const windowOf = (atMs: number) => Math.floor((unixMs(atMs) + phaseMs) / minuteMs);
  const violations: string[] = [];
  const admitted = new Map<number, number>();
  const perhaps = new Map<number, number>();
  for (const { callMs, returnMs, status, code, left, waitSeconds } of requests) {
    const window = windowOf(callMs);
    const isSure = window === windowOf(returnMs) && window === windowOf(callMs - lateMs);
    const count = (counts: Map<number, number>, place: number) => counts.set(place, (counts.get(place) ?? 0) + 1);
    if (status === 429) {
      if (isExact && isSure && code === "rate_limit_exceeded") {
        const most = (admitted.get(window) ?? 0) + (perhaps.get(window) ?? 0);
        if (most < limit) violations.push(`a request of ${callMs.toFixed(0)} got 429 after ${most} of ${limit}`);
        const restMs = (window + 1) * minuteMs - phaseMs - unixMs(callMs);
        if (Math.abs(waitSeconds * 1_000 - restMs) > toldMs) {
          violations.push(`a request of ${callMs.toFixed(0)} was told to wait ${waitSeconds} s of ${restMs} ms`);
        }
      }
    } else if (isSure && status !== 0 && status !== 503) {
      count(admitted, window);
      const least = admitted.get(window)!;
      const most = least + (perhaps.get(window) ?? 0);
      if (isExact && status === 200 && (left > limit - least || left < limit - most)) {
        violations.push(`a request of ${callMs.toFixed(0)} left ${left} after ${most} of ${limit}`);
      }
    } else for (const place of new Set([window, windowOf(returnMs)])) count(perhaps, place);
  }
  const most = limit * (1 + faults) + alone; // shares are rounded up
  for (const [, count] of admitted) {
    if (count > most) violations.push(`${count} requests of a minute were admitted, more than ${most}`);
  }
  return [...violations, ...judgeBans(requests, rules)];
}

/** @returns what contradicts the bans, which come after many refusals, and only then */
function judgeBans(requests: readonly LimitedRequest[], { alone, faults }: LimitRules): string[] {
  const refusals = requests.filter(({ code }) => code === "rate_limit_exceeded");
  const bans = requests.filter(({ code }) => code === "api_key_banned");
  const early = refusals.filter(({ callMs }) => bans.every((ban) => callMs < ban.callMs)).length;
  const violations = bans.length > 0 && early < refusalsOfBan ? [`a ban after ${early} refusals`] : [];
  if (faults > 0) return violations;
  for (const { waitSeconds } of bans) {
    const isFirst = waitSeconds >= firstBanSeconds - minuteMs / 1_000 && waitSeconds <= firstBanSeconds + 1;
    if (!isFirst) violations.push(`a ban for ${waitSeconds} s`);
  }
  const counted = refusals.filter(({ callMs }) => callMs > refusals[0]!.callMs + tellingMs).length;
  const most = refusalsOfBan * Math.max(alone, 1) + uncounted;
  return counted > most ? [...violations, `no ban after ${counted} refusals`] : violations;
}
