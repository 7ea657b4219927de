/** Formats what the `keys` commands print: JSON, and cells of tables for people. */
import { describePlan } from "./account-store.ts";
import type { UsageTotals } from "./account-usage.ts";
import { type KeyRecord, keyState } from "./key-records.ts";

/** ISO 8601 in UTC, or null. */
export function isoTime(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

/** As `2026-01-31 12:00:00Z`, for people; the text `without` for null. */
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

export function usageJson({ accountId: _, lastUsedAtMs, deprecatedByOperation, ...usage }: UsageTotals) {
  return { ...usage, deprecated: deprecatedByOperation, lastUsedAt: isoTime(lastUsedAtMs) };
}

export function usageCells(usage: UsageTotals): Record<string, string> {
  return {
    ACCOUNT: usage.account,
    PLAN: describePlan(usage),
    KEYS: String(usage.keys),
    VALID: String(usage.validKeys),
    "LAST USED": shownTime(usage.lastUsedAtMs, "never"),
    SERVED: String(usage.served),
    REFUSED: String(usage.refused),
    "DEPRECATED REQUESTS": String(usage.deprecatedRequests),
    "LAST ON": usage.deprecatedLastDay ?? "never",
  };
}
