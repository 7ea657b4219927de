import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin, type IssuedKey } from "../../gateway/accounts/cli/key-admin.ts";
import { createUsageStore } from "../../gateway/accounts/usage/usage-store.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import { createMysqlDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { hour, type KeyStores, newKey, openKeyStores } from "../support/key-stores.ts";
import { suiteStack } from "../support/stack.ts";

const start = Date.UTC(2026, 0, 31, 23, 0);

describeEachDatabase("the record of use", (url) => {
  const stack = suiteStack();
  let nowMs: number;
  let db: KeyStores["db"];
  let admin: KeyStores["admin"];
  let usage: KeyStores["usage"];
  let issue: KeyStores["issue"];
  let empty: KeyStores["empty"];
  beforeAll(async () => {
    ({ db, admin, usage, issue, empty } = await openKeyStores(stack, url(), () => nowMs));
  });
  beforeEach(async () => {
    nowMs = start;
    await empty();
  });

  async function issueMany(count: number) {
    const keys: IssuedKey[] = [];
    for (let i = 0; i < count; i++) keys.push(await issue()); // all at once would wait too long for a connection
    return keys;
  }

  test("takes the last use of many keys at once and never goes back", async () => {
    const keys = await issueMany(250);
    const uses = keys.map(({ keyId }, i) => ({ keyId, atMs: start + i }));
    await usage.touch([...uses, { keyId: "key_none", atMs: start }]);
    await usage.touch(uses.map(({ keyId }) => ({ keyId, atMs: start + 100 })));
    const lastUsed = new Map((await admin.list()).map((key) => [key.keyId, key.lastUsedAtMs]));
    for (const { keyId, atMs } of uses) expect(lastUsed.get(keyId)).toBe(Math.max(atMs, start + 100));
    await usage.touch([]);
  });

  test("never deadlocks when gateways write the same use in different orders", async () => {
    const keys = await issueMany(60);
    const uses = keys.map(({ keyId, accountId }, i) => ({
      touched: { keyId, atMs: start + i },
      deprecated: {
        accountId,
        operation: ["getPet", "getOrders"][i % 2]!,
        requests: 1,
        atMs: start + (i % 3) * 24 * hour,
      },
    }));
    const flush = async (list: typeof uses) => {
      for (let times = 0; times < 3; times++) {
        const touched = list.map((use) => ({ ...use.touched, atMs: use.touched.atMs + times }));
        const deprecated = list.map((use) => use.deprecated);
        await Promise.all([usage.touch(touched), usage.countDeprecatedUse(deprecated)]);
      }
    };
    const faults: string[] = []; // a deadlock is retried, so that no result shows it
    const note = (error: Error) => faults.push(error.message);
    db.on("query-error", note);
    await Promise.all([flush(uses), flush(uses.toReversed()), flush(uses)]);
    db.off("query-error", note);
    expect(faults).toEqual([]);
    expect(await admin.usage(0)).toMatchObject([
      {
        lastUsedAtMs: start + 61,
        deprecatedRequests: 9 * 60,
        deprecatedLastDay: "2026-02-02",
        deprecatedByOperation: { getOrders: 9 * 30, getPet: 9 * 30 },
      },
    ]);
  });

  test("is summed up by account, and deprecated use by operation too", async () => {
    const acme = await issue({ plan: "pro" });
    const revoked = await issue();
    await issue({ expiresAtMs: start + hour });
    const other = await issue({ account: "other" });
    await admin.revoke(revoked.keyId);
    await usage.touch([
      { keyId: acme.keyId, atMs: start + 5 },
      { keyId: revoked.keyId, atMs: start + 7 },
    ]);
    const use = { accountId: acme.accountId, operation: "getPet", atMs: start };
    await usage.countDeprecatedUse([{ ...use, requests: 3 }]);
    await usage.countDeprecatedUse([
      { ...use, requests: 4 },
      { ...use, requests: 10, atMs: start + hour },
      { ...use, requests: 100, operation: "getOrders" },
    ]);
    nowMs = start + hour;
    expect(await admin.usage(0)).toEqual([
      {
        accountId: acme.accountId,
        account: "acme",
        plan: "pro",
        limits: null,
        keys: 3,
        validKeys: 1,
        lastUsedAtMs: start + 7,
        served: 0,
        refused: 0,
        deprecatedRequests: 117,
        deprecatedLastDay: "2026-02-01",
        deprecatedByOperation: { getOrders: 100, getPet: 17 },
      },
      {
        accountId: other.accountId,
        account: "other",
        plan: "free",
        limits: null,
        keys: 1,
        validKeys: 1,
        lastUsedAtMs: null,
        served: 0,
        refused: 0,
        deprecatedRequests: 0,
        deprecatedLastDay: null,
        deprecatedByOperation: {},
      },
    ]);
    const rows = await db("deprecated_use").orderBy(["operation", "day"]).select("operation", "day");
    expect(rows).toEqual([
      { operation: "getOrders", day: "2026-01-31" },
      { operation: "getPet", day: "2026-01-31" },
      { operation: "getPet", day: "2026-02-01" },
    ]);
  });

  test("counts deprecated use whole or not at all", async () => {
    const { accountId } = await issue();
    const use = { operation: "getPet", requests: 1, atMs: start };
    const uses = [accountId, "acc_none"].map((id) => ({ ...use, accountId: id }));
    await expect(usage.countDeprecatedUse(uses)).rejects.toThrow();
    expect(await admin.usage(0)).toMatchObject([{ deprecatedRequests: 0 }]);
  });
});

describe("a read-only server (MySQL/MariaDB)", () => {
  const stack = suiteStack();

  test("its connections are closed, even those of look-ups, and the write uses another one", async () => {
    const url = await createMysqlDatabase();
    stack.defer(() => dropDatabase(url));
    const db = openDatabase(url, { ...databaseDefaults, poolMax: 3 });
    stack.defer(() => db.destroy());
    await migrate(db, "gateway", gatewayMigrations, "up");
    const { keyId } = await createKeyAdmin(db, Date.now).issue({
      account: "acme",
      ...newKey(),
    });
    const all = () => Promise.all(Array.from({ length: 3 }, () => db.client.acquireConnection()));
    const stale = await all();
    for (const connection of stale) {
      await db.raw("SET SESSION TRANSACTION READ ONLY").connection(connection);
      await db.client.releaseConnection(connection);
    }
    await createUsageStore(db).touch([{ keyId, atMs: 7 }]);
    expect((await createKeyAdmin(db, Date.now).list())[0]).toMatchObject({ keyId, lastUsedAtMs: 7 });
    const now = await all();
    for (const connection of now) {
      expect(stale).not.toContain(connection);
      await db.client.releaseConnection(connection);
    }
  });
});
