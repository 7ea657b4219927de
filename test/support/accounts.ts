/** Names accounts for tests of limits on the real clock. */
import { phaseMsOf } from "../../gateway/limits/limit-rule.ts";

const dayMs = 86_400_000;
let names = 0;

/**
 * Whether a minute of the account has begun 3 to 18 s ago, and at least an hour of its day is left. A clock that a test
 * has just stopped is in the same minute.
 */
export function isEarly(accountId: string, nowMs = Date.now()): boolean {
  const ms = nowMs + phaseMsOf(accountId);
  return ms % 60_000 >= 3_000 && ms % 60_000 < 18_000 && ms % dayMs < 23 * 3_600_000;
}

/** An id that no test has used, of an account that is early in its windows. @param fits chooses among such ids */
export function newAccount(fits: (id: string) => boolean = () => true, nowMs = Date.now()): string {
  for (;;) {
    const id = `acc_${++names}`;
    if (isEarly(id, nowMs) && fits(id)) return id;
  }
}

/** An id that no test has used, of an account whose day and minute have begun in the last 18 s. */
export function newAccountToday(nowMs = Date.now()): string {
  return newAccount((id) => (nowMs + phaseMsOf(id)) % dayMs < 18_000, nowMs);
}

/** The time until the next day of an account begins, and with it a minute. */
export function untilNextDayMs(accountId: string, nowMs: number): number {
  return dayMs - ((nowMs + phaseMsOf(accountId)) % dayMs);
}
