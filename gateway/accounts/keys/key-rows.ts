/** Reads the columns that several queries about keys and accounts share. */
import type { Knex } from "knex";
import { type AccountLimits, hasOwnLimits, type PlanName, planNames } from "./plans.ts";
import { type Scope, scopes } from "./principal.ts";

/** An integer as drivers return it: bigint from SQLite, from MySQL bigint for a BIGINT and number for an INT. */
export type DbInteger = number | bigint;

/** Columns of an account's plan, in any row that was joined with `accounts`. */
export interface PlanRow {
  plan: string;
  per_minute: DbInteger | null;
  per_day: DbInteger | null;
}

/** The id of the first key in the family of a key `k`: its row has the bans of the whole family. */
export function firstOfFamily(db: Knex): Knex.Raw {
  return db.raw("coalesce(k.line, k.id)");
}

/** Times and counts are far below 2^53, so a number holds them exactly. */
export function toNumber(value: DbInteger | null): number | null {
  return value === null ? null : Number(value);
}

/** The account of a key has a plan that cannot be used. Keys of other accounts are not affected. */
export class UnusablePlanError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UnusablePlanError";
  }
}

/** @throws UnusablePlanError when this version does not know the plan, or the account lacks the limits that it needs */
export function toPlan(row: PlanRow): { plan: PlanName; limits: AccountLimits | null } {
  const plan = planNames.find((name) => name === row.plan);
  if (plan === undefined) throw new UnusablePlanError("an account has a plan that this version does not know");
  if (!hasOwnLimits(plan)) return { plan, limits: null };
  if (row.per_minute === null || row.per_day === null)
    throw new UnusablePlanError(`an account on the plan ${plan} has no limits`);
  return { plan, limits: { perMinute: Number(row.per_minute), perDay: Number(row.per_day) } };
}

/** A scope that this version does not know gives no right. */
export function toScopes(text: string): Scope[] {
  const held = text.split(" ");
  return scopes.filter((scope) => held.includes(scope));
}

export function fromScopes(list: readonly Scope[]): string {
  return scopes.filter((scope) => list.includes(scope)).join(" ");
}
