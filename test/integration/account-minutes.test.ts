import { inspect } from "node:util";
import type { Knex } from "knex";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { createUsageStore, type UsageStore } from "../../gateway/accounts/usage/usage-store.ts";
import { isSqlite } from "../../runtime/database/knex-internals.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { request } from "../support/http.ts";
import { startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { madeUpKey, testPepper } from "../support/made-keys.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const minute = 60_000;
const noon = Date.UTC(2026, 0, 31, 12);

/** Reads the counts of an account by minute, oldest first: minutes after `sinceMs`, requests, and those refused. */
async function minutesOf(db: Knex, accountId: string, sinceMs = noon): Promise<[number, number, number][]> {
  const rows = await db("account_minutes").where({ account_id: accountId }).orderBy("minute_start");
  return rows.map((row) => [(Number(row.minute_start) - sinceMs) / minute, Number(row.requests), Number(row.refused)]);
}

describeEachDatabase("counts by account and minute", (url) => {
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
    await migrate(db, "gateway", gatewayMigrations, "up");
    usage = createUsageStore(db);
  });
  beforeEach(async () => {
    for (const table of ["account_minutes", "deprecated_use", "api_keys", "accounts"]) await db(table).delete();
  });

  async function newAccount(account: string) {
    const stored = storedKey(createKey("test", testPepper), testPepper);
    return (await createKeyAdmin(db, () => noon).issue({ account, ...stored })).accountId;
  }

  test("the counts by account and minute add up over all gateways without a deadlock", async () => {
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
            [0, 1, 2].map((each) => ({ accountId, minuteStartMs: noon + each * minute, requests: 1 + i, refused: i })),
          );
          await gateway.addMinutes(i % 2 === 0 ? minutes : minutes.toReversed());
        }
      }),
    );
    expect(faults).toEqual([]);
    for (const accountId of accounts) {
      expect(await minutesOf(db, accountId)).toEqual([
        [0, 50, 30],
        [1, 50, 30],
        [2, 50, 30],
      ]);
    }
  });

  test("the counts by account and minute are added whole or not at all", async () => {
    const accountId = await newAccount("a");
    const minutes = [accountId, "acc_none"].map((id) => ({
      accountId: id,
      minuteStartMs: noon,
      requests: 1,
      refused: 0,
    }));
    await expect(usage.addMinutes(minutes)).rejects.toThrow();
    expect(await minutesOf(db, accountId)).toEqual([]);
    await usage.addMinutes([]);
  });

  test("the counts by account and minute are deleted oldest first", async () => {
    const accountId = await newAccount("a");
    await usage.addMinutes(
      [0, 1, 2].map((each) => ({ accountId, minuteStartMs: noon + each * minute, requests: 1 + each, refused: each })),
    );
    await usage.forgetMinutesBefore(noon + minute);
    expect(await minutesOf(db, accountId)).toEqual([
      [1, 2, 1],
      [2, 3, 2],
    ]);
  });

  test("the counts of one account are summed up by steps, from the start of the first step on", async () => {
    const [accountId, other] = [await newAccount("a"), await newAccount("b")];
    const at = (minutes: number, requests: number, id = accountId) => ({
      accountId: id,
      minuteStartMs: noon + minutes * minute,
      requests,
      refused: 1,
    });
    await usage.addMinutes([at(-1, 500), at(0, 2), at(59, 3), at(60, 4), at(7 * 24 * 60, 5), at(0, 700, other)]);
    const read = (stepMs: number) => usage.readSteps({ accountId, fromMs: noon, stepMs });
    const hour = 60 * minute;
    expect((await read(hour)).toSorted((a, b) => a.stepStartMs - b.stepStartMs)).toEqual([
      { stepStartMs: noon, requests: 5, refused: 2 },
      { stepStartMs: noon + hour, requests: 4, refused: 1 },
      { stepStartMs: noon + 7 * 24 * hour, requests: 5, refused: 1 },
    ]);
    expect(await read(minute)).toHaveLength(4);
    expect(await usage.readSteps({ accountId: "acc_none", fromMs: 0, stepMs: hour })).toEqual([]);
  });

  test("the counts by account and minute are read by the primary key of their table", async () => {
    const accountId = await newAccount("a");
    await usage.addMinutes([{ accountId, minuteStartMs: noon, requests: 1, refused: 0 }]);
    const queries: { sql: string; bindings: readonly unknown[] }[] = [];
    const note = (query: { sql: string; bindings: readonly unknown[] }) => queries.push(query);
    db.on("query", note);
    await usage.readSteps({ accountId, fromMs: noon, stepMs: 60 * minute });
    db.off("query", note);
    const { sql, bindings } = queries.at(-1)!;
    const plan = await db.raw(isSqlite(db) ? `explain query plan ${sql}` : `explain format=json ${sql}`, [
      ...bindings,
    ] as string[]);
    expect(inspect(plan, { depth: 5 })).toMatch(
      isSqlite(db)
        ? /SEARCH account_minutes USING INDEX sqlite_autoindex.*account_id=\? AND/
        : /("key"|"index_name"): ?"PRIMARY"/,
    );
  });

  test("the counts of deprecated operations are summed up from the day of the first step on", async () => {
    const [accountId, other] = [await newAccount("a"), await newAccount("b")];
    const day = 24 * 60 * minute;
    const use = { accountId, operation: "getPet", atMs: noon, requests: 1 };
    await usage.countDeprecatedUse([
      { ...use, atMs: noon - day, requests: 100 },
      use,
      { ...use, operation: "getOrders", requests: 2 },
      { ...use, atMs: noon + day, requests: 4 },
      { ...use, accountId: other, requests: 50 },
    ]);
    expect(await usage.readDeprecatedUse({ accountId, fromMs: noon + 60 * minute })).toBe(7);
    expect(await usage.readDeprecatedUse({ accountId: "acc_none", fromMs: 0 })).toBe(0);
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
    for (let i = 0; i < 10; i++) await get(madeUpKey());
    await gateway.close();
  }

  test("are counted by minute at every gateway, with refused ones, and only with a valid key", async () => {
    const clock = new TestClock();
    clock.advance(minute - (clock.now() % minute));
    const start = clock.now();
    const first = await system.issueKey({ plan: "free" });
    const second = await system.issueKey({ account: first.account });
    await send(70, [first.key, second.key], clock); // 60 are admitted
    await send(20, [first.key, second.key], clock);
    // The first gateway refuses 10; the second one, which counts for itself, none.
    expect(await minutesOf(db, first.accountId, start)).toEqual([[0, 90, 10]]);
    expect(await db("account_minutes").distinct("account_id")).toEqual([{ account_id: first.accountId }]);
  });

  test("are deleted from the counts after 8 days", async () => {
    const clock = new TestClock();
    clock.advance(minute - (clock.now() % minute));
    const start = clock.now();
    const { key, accountId } = await system.issueKey();
    await send(1, [key, key], clock);
    clock.advance(8 * 24 * 60 * minute);
    await send(2, [key, key], clock);
    expect(await minutesOf(db, accountId, start)).toEqual([
      [0, 1, 0],
      [8 * 24 * 60, 2, 0],
    ]);
    clock.advance(minute);
    await send(3, [key, key], clock);
    expect(await minutesOf(db, accountId, start)).toEqual([
      [8 * 24 * 60, 2, 0],
      [8 * 24 * 60 + 1, 3, 0],
    ]);
  });
});
