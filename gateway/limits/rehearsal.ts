import type { AccountLimits } from "../auth/principal.ts";

/** Requests of an account in one minute. */
export interface MinuteCount {
  /** Unix milliseconds; a multiple of 60,000. */
  readonly minuteStartMs: number;
  readonly requests: number;
}

/** What limits make of an account's traffic. */
export interface Refusals {
  readonly requests: number;
  /** Minutes in which some of them fall. */
  readonly minutes: number;
  /** Days in UTC, likewise. */
  readonly days: number;
}

export interface Peaks {
  readonly minute: MinuteCount;
  /** In UTC, as `2026-01-31`. */
  readonly day: { readonly day: string; readonly requests: number };
  readonly requests: number;
}

/**
 * What limits would have refused. An estimate: windows begin with full minutes and days in UTC here, and in truth with
 * the caller's first request.
 *
 * @param minutes in their order
 */
export function rehearse(minutes: readonly MinuteCount[], { perMinute, perDay }: AccountLimits): Refusals {
  let [requests, refusedMinutes, refusedDays] = [0, 0, 0];
  for (const ofDay of byDay(minutes).values()) {
    let leftOfDay = perDay;
    let hasRefused = false;
    for (const minute of ofDay) {
      const admitted = Math.min(minute.requests, perMinute, leftOfDay);
      leftOfDay -= admitted; // a request that the minute refuses charges nothing to the day
      if (admitted === minute.requests) continue;
      requests += minute.requests - admitted;
      refusedMinutes += 1;
      hasRefused = true;
    }
    if (hasRefused) refusedDays += 1;
  }
  return { requests, minutes: refusedMinutes, days: refusedDays };
}

/** The busiest minute and day, the first of equal ones. @param minutes at least one, in their order */
export function peaksOf(minutes: readonly MinuteCount[]): Peaks {
  const days = [...byDay(minutes)].map(([day, ofDay]) => ({ day, requests: sum(ofDay) }));
  return { minute: busiest(minutes), day: busiest(days), requests: sum(minutes) };
}

function busiest<T extends { readonly requests: number }>(counts: readonly T[]): T {
  return counts.reduce((most, each) => (each.requests > most.requests ? each : most));
}

function sum(counts: readonly { readonly requests: number }[]): number {
  return counts.reduce((total, { requests }) => total + requests, 0);
}

function byDay(minutes: readonly MinuteCount[]): Map<string, MinuteCount[]> {
  return Map.groupBy(minutes, ({ minuteStartMs }) => new Date(minuteStartMs).toISOString().slice(0, 10));
}
