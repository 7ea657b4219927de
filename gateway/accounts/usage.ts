import type { Knex } from "knex";
import { type DbInteger, type PlanRow, toNumber, toPlan } from "../auth/rows.ts";
import type { Account } from "./account-store.ts";

/** How much an account uses, for `keys usage`. */
export interface AccountUsage extends Account {
  /** Keys ever issued. */
  readonly keys: number;
  /** Keys that are neither revoked nor expired. */
  readonly validKeys: number;
  /** Unix milliseconds of the last use of any of its keys. */
  readonly lastUsedAtMs: number | null;
  /** Requests to deprecated routes, ever. */
  readonly deprecatedRequests: number;
  /** The last day of them, in UTC, as `2026-01-31`. */
  readonly deprecatedLastDay: string | null;
}

/** Of every account, by name. */
export async function readUsage(db: Knex, nowMs: number): Promise<AccountUsage[]> {
  const accounts: (PlanRow & { id: string; name: string })[] = await db("accounts")
    .select("id", "name", "plan", "per_minute", "per_day")
    .orderBy("name");
  const keys: KeysRow[] = await keysByAccount(db);
  const valid: KeysRow[] = await keysByAccount(db)
    .whereNull("revoked_at")
    .where((open) => open.whereNull("expires_at").orWhere("expires_at", ">", nowMs));
  const deprecated: DeprecatedRow[] = await db("deprecated_use")
    .groupBy("account_id")
    .select("account_id")
    .sum({ requests: "requests" })
    .max({ day: "day" });

  const keysOf = byAccount(keys);
  const validOf = byAccount(valid);
  const deprecatedOf = byAccount(deprecated);
  return accounts.map((account) => ({
    accountId: account.id,
    account: account.name,
    ...toPlan(account),
    keys: Number(keysOf.get(account.id)?.keys ?? 0),
    validKeys: Number(validOf.get(account.id)?.keys ?? 0),
    lastUsedAtMs: toNumber(keysOf.get(account.id)?.last_used_at ?? null),
    deprecatedRequests: Number(deprecatedOf.get(account.id)?.requests ?? 0),
    deprecatedLastDay: deprecatedOf.get(account.id)?.day ?? null,
  }));
}

function keysByAccount(db: Knex): Knex.QueryBuilder {
  return db("api_keys")
    .groupBy("account_id")
    .select("account_id")
    .count({ keys: "*" })
    .max({ last_used_at: "last_used_at" });
}

function byAccount<T extends { account_id: string }>(rows: readonly T[]): Map<string, T> {
  return new Map(rows.map((row) => [row.account_id, row]));
}

interface KeysRow {
  account_id: string;
  keys: DbInteger;
  last_used_at: DbInteger | null;
}

interface DeprecatedRow {
  account_id: string;
  /** A sum comes from MySQL as text. */
  requests: DbInteger | string;
  day: string;
}
