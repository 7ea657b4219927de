/** Judges the limits of an account by what became of its requests. */
import type { LimitedRequest } from "./callers.ts";

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
}

const minuteMs = 60_000;

/** @returns what contradicts the limits */
export function judgeLimits(requests: readonly LimitedRequest[], rules: LimitRules): string[] {
  const { limit, unixMs, phaseMs, alone, faults } = rules;
  const isExact = alone === 0 && faults === 0;
  const windowOf = (atMs: number) => Math.floor((unixMs(atMs) + phaseMs) / minuteMs);
  const violations: string[] = [];
  const admitted = new Map<number, number>();
  const perhaps = new Map<number, number>();
  let refusals = 0;
  for (const { callMs, returnMs, status, code } of requests) {
    const window = windowOf(callMs);
    const isSure = window === windowOf(returnMs);
    const count = (counts: Map<number, number>, place: number) => counts.set(place, (counts.get(place) ?? 0) + 1);
    if (status === 429) {
      if (isExact && isSure && code === "rate_limit_exceeded") {
        const most = (admitted.get(window) ?? 0) + (perhaps.get(window) ?? 0);
        if (most < limit) violations.push(`a request of ${callMs.toFixed(0)} got 429 after ${most} of ${limit}`);
      }
      if (code === "api_key_banned" && refusals < 30) violations.push(`a ban after ${refusals} refusals`);
      refusals += 1;
    } else if (isSure && status !== 0 && status !== 503) count(admitted, window);
    else for (const place of new Set([window, windowOf(returnMs)])) count(perhaps, place);
  }
  const most = limit * (1 + faults) + alone; // shares are rounded up
  for (const [, count] of admitted) {
    if (count > most) violations.push(`${count} requests of a minute were admitted, more than ${most}`);
  }
  return violations;
}
