/** How much each account uses. */
import type { Knex } from "knex";
import { type DbInteger, toNumber } from "../keys/key-rows.ts";
import { type Account, readAccounts } from "./account-store.ts";

/** How much an account uses, for `keys usage`. */
export interface UsageTotals extends Account {
  /** Keys ever issued. */
  readonly keys: number;
  /** Keys that are neither revoked nor expired. */
  readonly validKeys: number;
  /** Unix milliseconds of the last use of any of its keys. */
  readonly lastUsedAtMs: number | null;
  /** Requests that were charged since the time that was asked for. */
  readonly served: number;
  /** Requests since then that a spent window or a ban refused. */
  readonly refused: number;
  /** Requests to deprecated operations, ever. */
  readonly deprecatedRequests: number;
  /** The last day of them, in UTC, as `2026-01-31`. */
  readonly deprecatedLastDay: string | null;
  /** The same requests by operation, as `{ getPet: 7 }`. */
  readonly deprecatedByOperation: Readonly<Record<string, number>>;
}

/**
 * Reads the use of every account, by name.
 *
 * @param sinceMs requests since then are counted, in Unix milliseconds
 */
export async function readUsage(db: Knex, nowMs: number, sinceMs: number): Promise<UsageTotals[]> {
  const accounts = await readAccounts(db);
  const keys: KeysRow[] = await keysByAccount(db);
  const validKeys: KeysRow[] = await keysByAccount(db)
    .whereNull("revoked_at")
    .where((open) => open.whereNull("expires_at").orWhere("expires_at", ">", nowMs));
  const requests: RequestsRow[] = await db("account_minutes")
    .where("minute_start", ">", sinceMs - 60_000)
    .groupBy("account_id")
    .select("account_id")
    .sum({ requests: "requests", refused: "refused" });
  const deprecated: DeprecatedRow[] = await db("deprecated_use")
    .groupBy("account_id", "operation")
    .orderBy("operation")
    .select("account_id", "operation")
    .sum({ requests: "requests" })
    .max({ day: "day" });

  const keysOf = new Map(keys.map((row) => [row.account_id, row]));
  const validKeysOf = new Map(validKeys.map((row) => [row.account_id, row]));
  const requestsOf = new Map(requests.map((row) => [row.account_id, row]));
  const deprecatedOf = Map.groupBy(deprecated, (row) => row.account_id);
  return accounts.map((account) => ({
    ...account,
    keys: Number(keysOf.get(account.accountId)?.keys ?? 0),
    validKeys: Number(validKeysOf.get(account.accountId)?.keys ?? 0),
    lastUsedAtMs: toNumber(keysOf.get(account.accountId)?.last_used_at ?? null),
    ...shareOf(requestsOf.get(account.accountId)),
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

/** @param row that of one account */
function shareOf(row: RequestsRow | undefined) {
  const refused = Number(row?.refused ?? 0);
  return { served: Number(row?.requests ?? 0) - refused, refused };
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
    deprecatedByOperation: Object.fromEntries(rows.map(({ operation, requests }) => [operation, Number(requests)])),
  };
}

interface KeysRow {
  account_id: string;
  keys: DbInteger;
  last_used_at: DbInteger | null;
}

interface RequestsRow {
  account_id: string;
  /** MySQL returns a sum as text. */
  requests: DbInteger | string;
  refused: DbInteger | string;
}

interface DeprecatedRow {
  account_id: string;
  operation: string;
  /** MySQL returns a sum as text. */
  requests: DbInteger | string;
  day: string;
}
