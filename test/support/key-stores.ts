// The stores of keys on a database of its own, and the keys that a suite issues.
import type { Knex } from "knex";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin, type IssueRequest } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { createKeyStore } from "../../gateway/accounts/keys/key-store.ts";
import { createUsageStore } from "../../gateway/accounts/usage/usage-store.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import type { Stack } from "./stack.ts";

export const pepper = "pepper-of-the-test-with-32-chars!";
export const hour = 3_600_000;

/** A key as it is stored, made under a pepper. */
export const newKey = (under = pepper) => storedKey(createKey("test", under), under);

/** Brings the ends of all keys nearer, as if time had passed: the database goes by its own clock. */
export async function passTime(db: Knex, ms: number): Promise<void> {
  await db("api_keys").update({ expires_at: db.raw("expires_at - ?", [ms]) });
}

/** Does the same in the database of running gateways. */
export async function passTimeAt(url: string, ms: number): Promise<void> {
  const db = openDatabase(url);
  await passTime(db, ms).finally(() => db.destroy());
}

/** Matches a time of the database within a minute of another one. */
export const about = (ms: number) => expect.closeTo(ms, -5) as unknown as number;

/** Migrates a database for the keys of one suite, and closes it after that. */
export async function openKeyStores(stack: Stack, url: string, now: () => number) {
  const db = openDatabase(url);
  stack.defer(() => db.destroy());
  await migrate(db, "gateway", gatewayMigrations, "up");
  const store = createKeyStore(db);
  const admin = createKeyAdmin(db, now);
  return {
    db,
    store,
    admin,
    usage: createUsageStore(db),
    /** Issues a key for the account acme, unless the request says otherwise. */
    async issue(request: Partial<IssueRequest> = {}) {
      const key = newKey();
      return {
        ...(await admin.issue({ account: "acme", ...key, ...request })),
        find: () => store.findByHash(key.keyHash),
      };
    },
    /** Removes all keys and accounts. */
    async empty() {
      for (const table of ["deprecated_use", "api_keys", "accounts"]) await db(table).delete();
    },
  };
}

export type KeyStores = Awaited<ReturnType<typeof openKeyStores>>;
