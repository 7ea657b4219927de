import type { Knex } from "knex";
import { createKeyAdmin } from "../../gateway/accounts/key-admin.ts";
import { keyMigrations } from "../../gateway/accounts/migrations.ts";
import { createKey, hashKey } from "../../gateway/auth/key-format.ts";
import { createUsageStore, type UsageStore } from "../../gateway/usage/store.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { isSqlite, openDatabase } from "../../runtime/database/open.ts";
import { suiteStack } from "../support/cleanup.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { request } from "../support/http.ts";
import { startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { type System, startSystem } from "../support/system.ts";

const minute = 60_000;
const noon = Date.UTC(2026, 0, 31, 12);

/** Reads the counts of an account by minute, oldest first, as pairs of minutes after `sinceMs` and requests. */
async function minutesOf(db: Knex, accountId: string, sinceMs = noon): Promise<[number, number][]> {
  const rows = await db("account_minutes").where({ account_id: accountId }).orderBy("minute_start");
  return rows.map((row) => [(Number(row.minute_start) - sinceMs) / minute, Number(row.requests)]);
}

describeEachDatabase("the counts of requests by account and minute", (url) => {
  const stack = suiteStack();
  let db: Knex;
  let usage: UsageStore;
  const open = () => {
    const opened = openDatabase(url());
    stack.defer(() => opened.destroy());
    return opened;
  };
  beforeAll(async () => {
    db = open();
    await migrate(db, "gateway", keyMigrations, "up");
    usage = createUsageStore(db);
  });
  beforeEach(async () => {
    for (const table of ["account_minutes", "api_keys", "accounts"]) await db(table).delete();
  });

  async function newAccount(account: string) {
    const keyHash = hashKey(createKey("test"), "pepper-of-the-test-with-32-chars!");
    return (await createKeyAdmin(db, () => noon).issue({ account, keyHash, env: "test" })).accountId;
  }

  test("add up over all gateways without a deadlock", async () => {
    const accounts = await Promise.all(["a", "b", "c"].map((name) => newAccount(name)));
    const faults: string[] = []; // a deadlock is retried, so that no result shows it
    const gateways = Array.from({ length: 4 }, () => {
      const own = isSqlite(db) ? db : open(); // only one gateway can use SQLite
      own.on("query-error", (error: Error) => faults.push(error.message));
      return createUsageStore(own);
    });
    await Promise.all(
      gateways.map(async (gateway, i) => {
        for (let round = 0; round < 5; round++) {
          const minutes = accounts.flatMap((accountId) =>
            [0, 1, 2].map((each) => ({ accountId, minuteStartMs: noon + each * minute, requests: 1 + i })),
          );
          await gateway.addMinutes(i % 2 === 0 ? minutes : minutes.toReversed());
        }
      }),
    );
    expect(faults).toEqual([]);
    for (const accountId of accounts) {
      expect(await minutesOf(db, accountId)).toEqual([
        [0, 50],
        [1, 50],
        [2, 50],
      ]);
    }
  });

  test("are added whole or not at all", async () => {
    const accountId = await newAccount("a");
    const minutes = [accountId, "acc_none"].map((id) => ({ accountId: id, minuteStartMs: noon, requests: 1 }));
    await expect(usage.addMinutes(minutes)).rejects.toThrow();
    expect(await minutesOf(db, accountId)).toEqual([]);
    await usage.addMinutes([]);
  });

  test("are deleted oldest first", async () => {
    const accountId = await newAccount("a");
    await usage.addMinutes(
      [0, 1, 2].map((each) => ({ accountId, minuteStartMs: noon + each * minute, requests: 1 + each })),
    );
    await usage.forgetMinutesBefore(noon + minute);
    expect(await minutesOf(db, accountId)).toEqual([
      [1, 2],
      [2, 3],
    ]);
  });
});

describe("the requests of an account", () => {
  const stack = suiteStack();
  let system: System;
  let db: Knex;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
    db = openDatabase(system.databaseUrls.gateway);
    stack.defer(() => db.destroy());
  });

  /** Sends requests with two keys of an account to a new gateway, some of them to a path that does not exist. */
  async function send(count: number, [first, second]: readonly [string, string], clock: TestClock): Promise<void> {
    const gateway = await startLocalGateway(system.gatewayEnv, clock.now);
    const get = (token: string, path = "/v1/inventory") =>
      request(gateway.address, { path, headers: { authorization: `Bearer ${token}` } });
    for (let i = 0; i < count; i++) await get(i % 2 === 0 ? first : second, i % 3 === 0 ? "/v1/nothing" : undefined);
    for (let i = 0; i < 10; i++) await get(createKey("test"));
    await gateway.close();
  }

  test("are counted by minute at every gateway, including refused ones but not those without a valid key", async () => {
    const clock = new TestClock();
    clock.advance(minute - (clock.now() % minute));
    const start = clock.now();
    const first = await system.issueKey({ plan: "free" });
    const second = await system.issueKey({ account: first.account });
    await send(70, [first.key, second.key], clock); // 60 are admitted
    await send(20, [first.key, second.key], clock);
    expect(await minutesOf(db, first.accountId, start)).toEqual([[0, 90]]);
    expect(await db("account_minutes").distinct("account_id")).toEqual([{ account_id: first.accountId }]);
  });

  test("are deleted from the counts after 7 days", async () => {
    const clock = new TestClock();
    clock.advance(minute - (clock.now() % minute));
    const start = clock.now();
    const { key, accountId } = await system.issueKey();
    await send(1, [key, key], clock);
    clock.advance(7 * 24 * 60 * minute);
    await send(2, [key, key], clock);
    expect(await minutesOf(db, accountId, start)).toEqual([
      [0, 1],
      [7 * 24 * 60, 2],
    ]);
    clock.advance(minute);
    await send(3, [key, key], clock);
    expect(await minutesOf(db, accountId, start)).toEqual([
      [7 * 24 * 60, 2],
      [7 * 24 * 60 + 1, 3],
    ]);
  });
});
