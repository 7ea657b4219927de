import type { AccountLimits } from "../auth/principal.ts";
import { describePlan } from "./account-store.ts";
import { type KeyRecord, keyState } from "./key-records.ts";
import type { Rehearsal, RehearsedAccount } from "./rehearsal.ts";
import type { AccountUsage } from "./usage.ts";

/** One line per row below a line of headings, in columns; `empty` when there are no rows. */
export function table(rows: readonly Record<string, string>[], empty: string): string {
  const headings = Object.keys(rows[0] ?? {});
  if (rows.length === 0) return empty;
  const widths = headings.map((heading) => Math.max(heading.length, ...rows.map((row) => row[heading]!.length)));
  const line = (cells: string[]) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join("  ")
      .trimEnd();
  return [line(headings), ...rows.map((row) => line(headings.map((heading) => row[heading]!)))].join("\n");
}

/** ISO 8601 in UTC, or null. */
export function isoTime(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

/** To the second, in UTC, for people. */
export function shownTime(ms: number | null, without: string): string {
  return ms === null ? without : `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")}Z`;
}

export function keyJson(key: KeyRecord, nowMs: number) {
  return {
    keyId: key.keyId,
    account: key.account,
    plan: key.plan,
    state: keyState(key, nowMs),
    env: key.env,
    scopes: key.scopes,
    createdAt: isoTime(key.createdAtMs),
    expiresAt: isoTime(key.expiresAtMs),
    revokedAt: isoTime(key.revokedAtMs),
    replacedBy: key.replacedBy,
    lastUsedAt: isoTime(key.lastUsedAtMs),
  };
}

export function keyCells(key: KeyRecord, nowMs: number): Record<string, string> {
  return {
    KEY: key.keyId,
    ACCOUNT: key.account,
    PLAN: key.plan,
    STATE: keyState(key, nowMs),
    ENV: key.env,
    SCOPES: key.scopes.join(","),
    CREATED: shownTime(key.createdAtMs, "-"),
    EXPIRES: shownTime(key.expiresAtMs, "never"),
    "LAST USED": shownTime(key.lastUsedAtMs, "never"),
  };
}

export function banJson(key: KeyRecord) {
  return {
    keyId: key.keyId,
    account: key.account,
    step: key.banStep,
    bannedAt: isoTime(key.bannedAtMs),
    bannedUntil: isoTime(key.bannedUntilMs),
  };
}

export function banCells(key: KeyRecord): Record<string, string> {
  return {
    KEY: key.keyId,
    ACCOUNT: key.account,
    STEP: String(key.banStep),
    SINCE: shownTime(key.bannedAtMs, "-"),
    UNTIL: shownTime(key.bannedUntilMs, "-"),
  };
}

export function usageJson({ accountId: _, lastUsedAtMs, ...usage }: AccountUsage) {
  return { ...usage, lastUsedAt: isoTime(lastUsedAtMs) };
}

export function usageCells(usage: AccountUsage): Record<string, string> {
  return {
    ACCOUNT: usage.account,
    PLAN: describePlan(usage),
    KEYS: String(usage.keys),
    VALID: String(usage.validKeys),
    "LAST USED": shownTime(usage.lastUsedAtMs, "never"),
    "DEPRECATED ROUTE": String(usage.deprecatedRequests),
    "LAST ON": usage.deprecatedLastDay ?? "never",
  };
}

export function rehearsalJson({ period }: Rehearsal, shown: readonly RehearsedAccount[]) {
  return {
    from: isoTime(period?.fromMs ?? null),
    to: isoTime(period?.toMs ?? null),
    accounts: shown.map(({ accountId: _, minute, day, refusedNow, refusedThen, ...account }) => ({
      ...account,
      peakMinute: { from: isoTime(minute.minuteStartMs), requests: minute.requests },
      peakDay: day,
      refusedNow,
      refusedThen,
    })),
  };
}

/** The table, the period and what kind of estimate it is, for people. */
export function rehearsalText({ period, accounts }: Rehearsal, shown: readonly RehearsedAccount[]): string {
  if (period === null) return "There is no traffic yet: gateways note it every half minute, and keep it for 7 days.";
  const hit = accounts.filter(({ refusedThen }) => refusedThen.requests > 0).length;
  return `${table(shown.map(rehearsedCells), "None of them would have been refused anything.")}

Of ${accounts.length} accounts with requests from ${shownTime(period.fromMs, "")} to ${shownTime(period.toMs, "")}, ${hit} would have been refused some.
An estimate: it counts by full minutes and days in UTC, where windows begin with the first request, and by account.
Requests that were refused count as demand, so it shows too many where callers repeat what was refused.`;
}

function rehearsedCells(account: RehearsedAccount): Record<string, string> {
  const { minute, day, refusedNow, refusedThen } = account;
  return {
    ACCOUNT: account.account,
    PLAN: account.plan,
    NOW: shownLimits(account.limitsNow),
    THEN: shownLimits(account.limitsThen),
    REQUESTS: String(account.requests),
    "PEAK MINUTE": `${minute.requests} (${shownTime(minute.minuteStartMs, "").slice(0, 16)}Z)`,
    "PEAK DAY": `${day.requests} (${day.day})`,
    "MINUTES REFUSED": String(refusedThen.minutes),
    "DAYS REFUSED": String(refusedThen.days),
    "REQUESTS REFUSED": String(refusedThen.requests),
    "BY TODAY'S PLANS": String(refusedNow.requests),
  };
}

function shownLimits({ perMinute, perDay }: AccountLimits): string {
  return `${perMinute}/${perDay}`;
}
