import type { Knex } from "knex";
import { createKeyAdmin } from "../../gateway/accounts/key-admin.ts";
import { keyMigrations } from "../../gateway/accounts/migrations.ts";
import { createKey, hashKey } from "../../gateway/auth/key-format.ts";
import type { AccountLimits, PlanName } from "../../gateway/auth/principal.ts";
import { createTrafficStore, readMinutes, type TrafficStore } from "../../gateway/usage/traffic.ts";
import { isSqlite, openDatabase } from "../../runtime/database/open.ts";
import { migrate } from "../../runtime/migrations.ts";
import { suiteStack } from "../support/cleanup.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { request } from "../support/http.ts";
import { startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { runScript } from "../support/processes.ts";
import { type System, startSystem } from "../support/system.ts";

const pepper = "pepper-of-the-test-with-32-chars!";
const minute = 60_000;
const noon = Date.UTC(2026, 0, 31, 12);

describeEachDatabase("the traffic of accounts", (url) => {
  const stack = suiteStack();
  let db: Knex;
  let traffic: TrafficStore;
  const open = () => {
    const opened = openDatabase(url());
    stack.defer(() => opened.destroy());
    return opened;
  };
  beforeAll(async () => {
    db = open();
    await migrate(db, "gateway", keyMigrations, "up");
    traffic = createTrafficStore(db);
  });
  beforeEach(async () => {
    for (const table of ["account_minutes", "api_keys", "accounts"]) await db(table).delete();
  });

  async function newAccount(account: string, plan: PlanName = "free", limits: AccountLimits | null = null) {
    const keyHash = hashKey(createKey("test"), pepper);
    const issued = await createKeyAdmin(db, () => noon).issue({ account, plan, limits, keyHash, env: "test" });
    return issued.accountId;
  }
  const add = (accountId: string, ...counts: [minutes: number, requests: number][]) =>
    traffic.add(counts.map(([minutes, requests]) => ({ accountId, minuteStartMs: noon + minutes * minute, requests })));
  const counted = async (accountId: string) =>
    (await readMinutes(db, accountId)).map((each) => [(each.minuteStartMs - noon) / minute, each.requests]);

  test("adds up over all gateways", async () => {
    const accounts = await Promise.all(["a", "b", "c"].map((name) => newAccount(name)));
    const faults: string[] = []; // a deadlock would be retried, and show in no result
    const gateways = Array.from({ length: 4 }, () => {
      const own = isSqlite(db) ? db : open(); // whose gateway has its database for itself
      own.on("query-error", (error: Error) => faults.push(error.message));
      return createTrafficStore(own);
    });
    await Promise.all(
      gateways.map(async (gateway, i) => {
        for (let round = 0; round < 5; round++) {
          const minutes = accounts.flatMap((accountId) =>
            [0, 1, 2].map((each) => ({ accountId, minuteStartMs: noon + each * minute, requests: 1 + i })),
          );
          await gateway.add(i % 2 === 0 ? minutes : minutes.toReversed());
        }
      }),
    );
    expect(faults).toEqual([]);
    for (const accountId of accounts) {
      expect(await counted(accountId)).toEqual([
        [0, 50],
        [1, 50],
        [2, 50],
      ]);
    }
  });

  test("is added whole or not at all", async () => {
    const accountId = await newAccount("a");
    const minutes = [accountId, "acc_none"].map((id) => ({ accountId: id, minuteStartMs: noon, requests: 1 }));
    await expect(traffic.add(minutes)).rejects.toThrow();
    expect(await counted(accountId)).toEqual([]);
    await traffic.add([]);
  });

  test("is forgotten from its old end", async () => {
    const accountId = await newAccount("a");
    await add(accountId, [0, 1], [1, 2], [2, 3]);
    await traffic.forgetBefore(noon + minute);
    expect(await counted(accountId)).toEqual([
      [1, 2],
      [2, 3],
    ]);
  });

  describe("in a rehearsal of other limits", () => {
    const plan = (...args: string[]) =>
      runScript({
        script: "gateway/accounts/commands.ts",
        args: ["plan", ...args],
        env: { GATEWAY_DATABASE_URL: url(), PLAN_LIMITS: "free=50/1000" },
      });
    const rehearse = async (...args: string[]) => {
      const { code, stdout, stderr } = await plan("--rehearse", ...args);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      return stdout;
    };
    const none = { requests: 0, minutes: 0, days: 0 };

    test("shows who would have been refused what, and changes nothing", async () => {
      const hit = await newAccount("hit");
      const spared = await newAccount("spared");
      const pro = await newAccount("pro", "pro");
      const own = { perMinute: 5, perDay: 1_000 };
      const enterprise = await newAccount("enterprise", "enterprise", own);
      await newAccount("silent");
      await add(hit, [0, 55], [1, 30], [2, 31], [-1_440, 10]);
      await add(spared, [0, 30]);
      await add(pro, [0, 300], [1, 200]);
      await add(enterprise, [0, 7]);

      const shown = JSON.parse(await rehearse("free=30/1000,pro=300/400", "--json"));
      expect(shown).toMatchObject({
        plans: {
          free: { perMinute: 30, perDay: 1_000 },
          pro: { perMinute: 300, perDay: 400 },
          business: { perMinute: 1_000, perDay: 100_000 },
        },
        from: "2026-01-30T12:00:00.000Z",
        to: "2026-01-31T12:03:00.000Z",
      });
      const peakMinute = (requests: number) => ({ from: "2026-01-31T12:00:00.000Z", requests });
      expect(shown.accounts).toEqual([
        {
          account: "enterprise",
          plan: "enterprise",
          limitsNow: own,
          limitsThen: own,
          requests: 7,
          peakMinute: peakMinute(7),
          peakDay: { day: "2026-01-31", requests: 7 },
          refusedNow: { requests: 2, minutes: 1, days: 1 },
          refusedThen: { requests: 2, minutes: 1, days: 1 },
        },
        {
          account: "hit",
          plan: "free",
          limitsNow: { perMinute: 50, perDay: 1_000 },
          limitsThen: { perMinute: 30, perDay: 1_000 },
          requests: 126,
          peakMinute: peakMinute(55),
          peakDay: { day: "2026-01-31", requests: 116 },
          refusedNow: { requests: 5, minutes: 1, days: 1 },
          refusedThen: { requests: 26, minutes: 2, days: 1 },
        },
        {
          account: "pro",
          plan: "pro",
          limitsNow: { perMinute: 300, perDay: 10_000 },
          limitsThen: { perMinute: 300, perDay: 400 },
          requests: 500,
          peakMinute: peakMinute(300),
          peakDay: { day: "2026-01-31", requests: 500 },
          refusedNow: none,
          refusedThen: { requests: 100, minutes: 1, days: 1 },
        },
      ]);
      const all = JSON.parse(await rehearse("free=30/1000", "--all", "--json"));
      const spare = all.accounts.find(({ account }: { account: string }) => account === "spared");
      expect(spare).toMatchObject({ refusedThen: none });
      expect(all.accounts).toHaveLength(4); // the one that sent nothing has nothing to show

      const text = await rehearse("free=30/1000");
      expect(text).toMatch(
        /^ACCOUNT .*\n(enterprise .*\n)(hit +free +50\/1000 +30\/1000 +126 +55 \(2026-01-31 12:00Z\) .*\n)\n/,
      );
      expect(text).not.toMatch(/^(spared|pro|silent) /m);
      expect(text).toContain("Of 4 accounts with requests from 2026-01-30 12:00:00Z to 2026-01-31 12:03:00Z, 2 would");
      expect(text).toContain("An estimate:");
      expect(await counted(hit)).toHaveLength(4);
      expect((await db("accounts").where({ id: hit }).first()).plan).toBe("free");
    });

    test("says when nobody would have been refused, and when there was no traffic", async () => {
      expect(await rehearse("free=1/1")).toMatch(/There is no traffic yet/);
      expect(JSON.parse(await rehearse("free=1/1", "--json"))).toMatchObject({ from: null, to: null, accounts: [] });
      await add(await newAccount("a"), [0, 1]);
      expect(await rehearse("free=1/1")).toMatch(/^None of them would have been refused anything\./);
    });

    test("takes a table of plans and nothing else", async () => {
      const wrong = [
        ["--rehearse", "free=30"],
        ["--rehearse", "gold=1/1"],
        ["--rehearse", "free=30/500", "--account", "a"],
        ["--rehearse", "free=30/500", "--plan", "pro"],
        ["--rehearse"],
        ["--account", "a"],
        ["--plan", "pro"],
        [],
      ];
      for (const args of wrong) {
        const { code, stdout, stderr } = await plan(...args);
        expect({ args, code, stdout }).toEqual({ args, code: 64, stdout: "" });
        expect(stderr).toMatch(/^error: /);
        expect(stderr).not.toMatch(/\n\s+at /);
      }
    });
  });
});

describe("a rehearsal from live traffic", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
  });

  test("knows every request with a valid key of two gateways, refused ones too, and no other", async () => {
    const clock = new TestClock();
    clock.advance(minute - (clock.now() % minute));
    const { key, account } = await system.issueKey({ plan: "free" });
    const { key: second } = await system.issueKey({ account });
    for (const requests of [70, 20]) {
      const gateway = await startLocalGateway(system.gatewayEnv, clock.now);
      const get = (token: string, path = "/v1/inventory") =>
        request(gateway.address, { path, headers: { authorization: `Bearer ${token}` } });
      for (let i = 0; i < requests; i++) await get(i % 2 === 0 ? key : second, i % 3 === 0 ? "/v1/nothing" : undefined);
      for (let i = 0; i < 10; i++) await get(createKey("test"));
      await gateway.close();
    }
    const { stdout } = await system.runKeys("plan", "--rehearse", "free=80/1000", "--json");
    expect(JSON.parse(stdout).accounts).toMatchObject([
      {
        account,
        requests: 90,
        peakMinute: { from: new Date(clock.now()).toISOString(), requests: 90 },
        refusedNow: { requests: 30, minutes: 1, days: 1 },
        refusedThen: { requests: 10, minutes: 1, days: 1 },
      },
    ]);
  });
});
