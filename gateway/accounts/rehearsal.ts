import type { Knex } from "knex";
import type { AccountLimits } from "../auth/principal.ts";
import { type PlanRow, toPlan } from "../auth/rows.ts";
import type { PlanTable } from "../limits/plans.ts";
import { type Peaks, peaksOf, type Refusals, rehearse } from "../limits/rehearsal.ts";
import { readMinutes } from "../usage/traffic.ts";
import type { Account } from "./account-store.ts";

/** What a table of plans makes of the traffic of an account. */
export interface RehearsedAccount extends Peaks, Omit<Account, "limits"> {
  readonly limitsNow: AccountLimits;
  readonly limitsThen: AccountLimits;
  readonly refusedNow: Refusals;
  readonly refusedThen: Refusals;
}

export interface Rehearsal {
  /** Unix milliseconds of the traffic, its last minute included; null when there is none. */
  readonly period: { readonly fromMs: number; readonly toMs: number } | null;
  /** Every account that sent something, by name. */
  readonly accounts: readonly RehearsedAccount[];
}

/** Applies a table of plans, beside that of now, to the traffic that the gateways have noted. */
export async function rehearsePlans(db: Knex, now: PlanTable, then: PlanTable): Promise<Rehearsal> {
  const rows: (PlanRow & { id: string; name: string })[] = await db("accounts")
    .whereIn("id", db("account_minutes").distinct("account_id"))
    .select("id", "name", "plan", "per_minute", "per_day")
    .orderBy("name");
  const accounts: RehearsedAccount[] = [];
  let [fromMs, toMs] = [Number.POSITIVE_INFINITY, 0];
  // One account at a time: a busy one has ten thousand minutes.
  for (const row of rows) {
    const minutes = await readMinutes(db, row.id);
    if (minutes.length === 0) continue; // forgotten a moment ago
    fromMs = Math.min(fromMs, minutes[0]!.minuteStartMs);
    toMs = Math.max(toMs, minutes.at(-1)!.minuteStartMs + 60_000);
    const { plan, limits } = toPlan(row);
    const limitsNow = limits ?? now[plan as keyof PlanTable];
    const limitsThen = limits ?? then[plan as keyof PlanTable];
    accounts.push({
      accountId: row.id,
      account: row.name,
      plan,
      limitsNow,
      limitsThen,
      ...peaksOf(minutes),
      refusedNow: rehearse(minutes, limitsNow),
      refusedThen: rehearse(minutes, limitsThen),
    });
  }
  return { period: accounts.length === 0 ? null : { fromMs, toMs }, accounts };
}
