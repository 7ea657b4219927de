/** How much each account uses. */
import type { Knex } from "knex";
import { type DbInteger, toNumber } from "../keys/key-rows.ts";
import { type Account, readAccounts } from "./account-store.ts";

/** How much an account uses, for `keys usage`. */
export interface AccountUsage extends Account {
  /** Keys ever issued. */
  readonly keys: number;
  /** Keys that are neither revoked nor expired. */
  readonly validKeys: number;
  /** Unix milliseconds of the last use of any of its keys. */
  readonly lastUsedAtMs: number | null;
  /** Requests to deprecated operations, ever. */
  readonly deprecatedRequests: number;
  /** The last day of them, in UTC, as `2026-01-31`. */
  readonly deprecatedLastDay: string | null;
  /** The same requests by operation, as `{ getPet: 7 }`. */
  readonly deprecated: Readonly<Record<string, number>>;
}

/** Reads the use of every account, by name. */
export async function readUsage(db: Knex, nowMs: number): Promise<AccountUsage[]> {
  const accounts = await readAccounts(db);
  const keys: KeysRow[] = await keysByAccount(db);
  const validKeys: KeysRow[] = await keysByAccount(db)
    .whereNull("revoked_at")
    .where((open) => open.whereNull("expires_at").orWhere("expires_at", ">", nowMs));
  const deprecated: DeprecatedRow[] = await db("deprecated_use")
    .groupBy("account_id", "operation")
    .orderBy("operation")
    .select("account_id", "operation")
    .sum({ requests: "requests" })
    .max({ day: "day" });

  const keysOf = new Map(keys.map((row) => [row.account_id, row]));
  const validKeysOf = new Map(validKeys.map((row) => [row.account_id, row]));
  const deprecatedOf = Map.groupBy(deprecated, (row) => row.account_id);
  return accounts.map((account) => ({
    ...account,
    keys: Number(keysOf.get(account.accountId)?.keys ?? 0),
    validKeys: Number(validKeysOf.get(account.accountId)?.keys ?? 0),
    lastUsedAtMs: toNumber(keysOf.get(account.accountId)?.last_used_at ?? null),
    ...sumDeprecated(deprecatedOf.get(account.accountId) ?? []),
  }));
}

function keysByAccount(db: Knex): Knex.QueryBuilder {
  return db("api_keys")
    .groupBy("account_id")
    .select("account_id")
    .count({ keys: "*" })
    .max({ last_used_at: "last_used_at" });
}

/** @param rows those of one account */
function sumDeprecated(rows: readonly DeprecatedRow[]) {
  return {
    deprecatedRequests: rows.reduce((sum, { requests }) => sum + Number(requests), 0),
    deprecatedLastDay:
      rows
        .map(({ day }) => day)
        .toSorted()
        .at(-1) ?? null,
    deprecated: Object.fromEntries(rows.map(({ operation, requests }) => [operation, Number(requests)])),
  };
}

interface KeysRow {
  account_id: string;
  keys: DbInteger;
  last_used_at: DbInteger | null;
}

interface DeprecatedRow {
  account_id: string;
  operation: string;
  /** MySQL returns a sum as text. */
  requests: DbInteger | string;
  day: string;
}
