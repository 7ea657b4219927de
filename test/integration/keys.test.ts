import { randomBytes } from "node:crypto";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { keyState } from "../../gateway/accounts/cli/key-records.ts";
import { createKey, pepperFingerprint } from "../../gateway/accounts/keys/key-format.ts";
import { defaultScopes } from "../../gateway/accounts/keys/principal.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { about, hour, type KeyStores, newKey, openKeyStores, passTime, pepper } from "../support/key-stores.ts";
import { suiteStack } from "../support/stack.ts";

const start = Date.now();

describeEachDatabase("keys", (url) => {
  const stack = suiteStack();
  let nowMs: number;
  const now = () => nowMs;
  let db: KeyStores["db"];
  let store: KeyStores["store"];
  let admin: KeyStores["admin"];
  let issue: KeyStores["issue"];
  let empty: KeyStores["empty"];
  beforeAll(async () => {
    ({ db, store, admin, issue, empty } = await openKeyStores(stack, url(), now));
  });
  beforeEach(async () => {
    nowMs = start;
    await empty();
  });

  const open = () => {
    const opened = openDatabase(url());
    stack.defer(() => opened.destroy());
    return opened;
  };
  const keyOf = async (keyId: string) => (await admin.list()).find((key) => key.keyId === keyId)!;

  test("the migrations of keys go down to an empty schema and up again", async () => {
    const names = gatewayMigrations.map(({ name }) => name);
    for (const name of names.toReversed())
      expect(await migrate(db, "gateway", gatewayMigrations, "down")).toEqual([name]);
    for (const table of ["deprecated_use", "api_keys", "accounts"]) expect(await db.schema.hasTable(table)).toBe(false);
    expect(await migrate(db, "gateway", gatewayMigrations, "up")).toEqual(names);
    expect(await migrate(db, "gateway", gatewayMigrations, "up")).toEqual([]);
    expect(await admin.list()).toEqual([]);
  });

  test("the peppers of the keys that work are counted by their fingerprints", async () => {
    const [first, second] = ["1".repeat(32), "2".repeat(32)];
    expect(await store.keysByPepper()).toEqual(new Map());
    const old = await issue(newKey(first));
    const { keyId } = await admin.rotate(old.keyId, 2 * hour, newKey(second));
    await issue({ ...newKey(), expiresAtMs: nowMs - 1 });
    const third = await issue(newKey(second));
    const ofSecond = [pepperFingerprint(second), 2] as const;
    expect(await store.keysByPepper()).toEqual(new Map([[pepperFingerprint(first), 1], ofSecond]));
    expect(JSON.stringify(await db("api_keys").select("pepper"))).not.toMatch(/1{9}|2{9}/);
    await passTime(db, 2 * hour);
    expect(await store.keysByPepper()).toEqual(new Map([ofSecond]));
    for (const each of [keyId, third.keyId]) await admin.revoke(each);
    expect(await store.keysByPepper()).toEqual(new Map());
  });

  test("a key that an older gateway makes, which names no pepper, is found, and hides no pepper", async () => {
    const key = await issue();
    await db("api_keys").update({ pepper: null });
    expect(await key.find()).toBeTruthy();
    expect(await store.keysByPepper()).toEqual(new Map());
  });

  describe("look-ups", () => {
    test("a look-up finds a key with its account and rights", async () => {
      const { keyId, accountId, find } = await issue({ plan: "pro" });
      expect(await find()).toEqual({
        keyId,
        familyId: keyId,
        accountId,
        plan: "pro",
        limits: null,
        scopes: new Set(defaultScopes),
        expiresAtMs: null,
        endsInMs: Number.POSITIVE_INFINITY,
        bannedUntilMs: 0,
      });
      expect(keyId).toMatch(/^key_/);
      expect(accountId).toMatch(/^acc_/);
      expect((await keyOf(keyId)).lastUsedAtMs).toBeNull(); // only a look-up of a key that a rotation made is a use
    });

    test("a look-up finds the exact hash only, whatever its bytes", async () => {
      const keyHash = Buffer.concat([Buffer.from("abc\0 \\'\xff ", "latin1"), randomBytes(21), Buffer.from(" \0")]);
      await issue({ keyHash });
      expect(await store.findByHash(keyHash)).toBeTruthy();
      const upper = Buffer.from(keyHash);
      upper.write("ABC");
      expect(await store.findByHash(upper)).toBeUndefined();
      expect(await store.findByHash(keyHash.subarray(0, -2))).toBeUndefined();
      expect(await store.findByHash(randomBytes(32))).toBeUndefined();
    });

    test("a look-up returns the limits of an enterprise account", async () => {
      const limits = { perMinute: 2_147_483_647, perDay: 1 };
      const { find } = await issue({ plan: "enterprise", limits });
      expect(await find()).toMatchObject({ plan: "enterprise", limits });
    });

    test("a look-up returns the scopes of the key without those that this version does not know", async () => {
      const { keyId, find } = await issue({ scopes: ["store:read", "inventory:read"] });
      expect((await find())!.scopes).toEqual(new Set(["inventory:read", "store:read"]));
      await db("api_keys").where({ id: keyId }).update({ scopes: "store:read store:write" });
      expect((await find())!.scopes).toEqual(new Set(["store:read"]));
    });

    test("a look-up finds a key until the moment it expires", async () => {
      const { find } = await issue({ expiresAtMs: start + 2 * hour });
      await passTime(db, hour);
      expect(await find()).toMatchObject({ expiresAtMs: start + hour, endsInMs: about(hour) });
      await passTime(db, hour);
      expect(await find()).toBeUndefined();
    });

    test("a look-up fails for an account with a broken plan instead of choosing limits for it", async () => {
      const { find } = await issue({ plan: "enterprise", limits: { perMinute: 1, perDay: 1 } });
      for (const missing of ["per_day", "per_minute"]) {
        await db("accounts").update({ per_minute: 1, per_day: 1, [missing]: null });
        await expect(find()).rejects.toThrow(/no limits/);
      }
      await db("accounts").update({ plan: "gold" });
      await expect(find()).rejects.toThrow(/plan/);
    });
  });

  test("those of an account with a plan of a later version are listed and revoked", async () => {
    const { keyId } = await issue({ account: "newer" });
    await db("accounts").where({ name: "newer" }).update({ plan: "gold" });
    expect(await admin.list("newer")).toMatchObject([{ keyId, plan: "gold" }]);
    expect((await admin.revokeAll("newer")).keyIds).toEqual([keyId]);
    expect(await admin.list()).toMatchObject([{ keyId, revokedAtMs: expect.any(Number) }]);
  });

  describe("issuing", () => {
    test("a second key is added to its account, which keeps the plan", async () => {
      const first = await issue({ plan: "business" });
      const second = await issue();
      const third = await issue({ account: " acme ", plan: "business" });
      expect([second.accountId, third.accountId]).toEqual([first.accountId, first.accountId]);
      expect(await second.find()).toMatchObject({ plan: "business", keyId: second.keyId });
      expect(new Set([first.keyId, second.keyId, third.keyId]).size).toBe(3);
    });

    test("the first key of an account puts it on the free plan by default", async () => {
      expect(await (await issue()).find()).toMatchObject({ plan: "free", limits: null });
    });

    test("a new key never changes the plan of its account", async () => {
      await issue({ plan: "pro" });
      await expect(issue({ plan: "free" })).rejects.toMatchObject({
        code: "plan_differs",
        message: "Account 'acme' is on the plan pro; change it with 'keys plan' first.",
      });
      const limits = { perMinute: 10, perDay: 100 };
      await issue({ account: "big", plan: "enterprise", limits });
      await issue({ account: "big", plan: "enterprise", limits });
      await issue({ account: "big", plan: "enterprise" });
      await expect(issue({ account: "big", limits: { perMinute: 10, perDay: 101 } })).rejects.toMatchObject({
        code: "plan_differs",
      });
      expect(await admin.list()).toHaveLength(4);
    });

    test("a new key needs limits for enterprise and may have none else; a refusal makes no account", async () => {
      const limits = { perMinute: 10, perDay: 100 };
      await expect(issue({ plan: "enterprise" })).rejects.toMatchObject({ code: "invalid_limits" });
      await expect(issue({ plan: "pro", limits })).rejects.toMatchObject({ code: "invalid_limits" });
      await expect(issue({ limits })).rejects.toMatchObject({ code: "invalid_limits" });
      for (const perDay of [0, -1, 1.5, 2_147_483_648, Number.NaN]) {
        await expect(issue({ plan: "enterprise", limits: { perMinute: 10, perDay } })).rejects.toMatchObject({
          code: "invalid_limits",
        });
      }
      expect(await admin.usage(0)).toEqual([]);
    });

    test("a new key takes account names exactly, except for outer spaces and the form of accents", async () => {
      const names = [
        "acme",
        "Acme",
        "ácme",
        "acmé",
        "日本 🐾",
        "x".repeat(128),
        "🐾".repeat(128),
        "a'; DROP TABLE accounts",
      ];
      const ids = new Set<string>();
      for (const account of names) ids.add((await issue({ account })).accountId);
      expect(ids.size).toBe(names.length);
      expect((await issue({ account: "acme\u0301" })).account).toBe("acmé".normalize("NFC"));
      expect(await admin.usage(0)).toHaveLength(names.length);
      for (const account of ["", "  ", "a\nb", "a\0", "a\u202eb", "x".repeat(129)]) {
        await expect(issue({ account })).rejects.toMatchObject({ code: "invalid_account" });
      }
    });

    test("five operators that issue keys at once for a new account make one account and five keys", async () => {
      const admins = Array.from({ length: 5 }, () => createKeyAdmin(open(), now));
      for (let round = 0; round < 5; round++) {
        const account = `account ${round}`;
        const issued = await Promise.all(admins.map((each) => each.issue({ account, plan: "pro", ...newKey() })));
        expect(new Set(issued.map(({ accountId }) => accountId)).size).toBe(1);
        expect(await admin.list(account)).toHaveLength(5);
      }
      expect(await admin.usage(0)).toHaveLength(5);
    });

    test("one of two operators fails when both issue keys for a new account with different plans", async () => {
      const other = createKeyAdmin(open(), now);
      const results = await Promise.allSettled([
        admin.issue({ account: "new", plan: "pro", ...newKey() }),
        other.issue({ account: "new", plan: "business", ...newKey() }),
      ]);
      expect(results.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
      expect(await admin.list("new")).toHaveLength(1);
    });
  });

  describe("listing", () => {
    test("the list shows all keys or those of one account, by account and age, and never a hash", async () => {
      const b = await issue({ account: "b" });
      const a1 = await issue({ account: "a" });
      nowMs += 1;
      const a2 = await issue({ account: "a", expiresAtMs: start + hour });
      const ids = async (account?: string) => (await admin.list(account)).map(({ keyId }) => keyId);
      expect(await ids()).toEqual([a1.keyId, a2.keyId, b.keyId]);
      expect(await ids("a")).toEqual([a1.keyId, a2.keyId]);
      expect(await keyOf(a2.keyId)).toEqual({
        keyId: a2.keyId,
        familyId: a2.keyId,
        account: "a",
        plan: "free",
        env: "test",
        scopes: [...defaultScopes],
        createdAtMs: start + 1,
        expiresAtMs: start + hour,
        revokedAtMs: null,
        replacedBy: null,
        lastUsedAtMs: null,
        bannedUntilMs: 0,
        bannedAtMs: null,
        banStep: 0,
      });
      await expect(admin.list("A")).rejects.toMatchObject({ code: "unknown_account" });
    });
  });

  describe("rotation", () => {
    test("a rotation makes a key with the same rights, and the old key works until the grace ends", async () => {
      const old = await issue({ plan: "pro", scopes: ["store:read"], expiresAtMs: start + 100 * hour });
      const next = newKey();
      const rotated = await admin.rotate(old.keyId, 24 * hour, next);
      expect(rotated).toMatchObject({ account: "acme", plan: "pro", oldExpiresAtMs: about(start + 24 * hour) });
      const found = (await store.findByHash(next.keyHash))!;
      const successor = { keyId: rotated.keyId, expiresAtMs: start + 100 * hour, endsInMs: about(100 * hour) };
      expect(found).toEqual({ ...(await old.find()), ...successor });
      expect(keyState(await keyOf(old.keyId), nowMs)).toBe("replaced");
      await passTime(db, 23 * hour);
      expect(await old.find()).toBeTruthy();
      await passTime(db, hour);
      expect(await old.find()).toBeUndefined();
      expect(await store.findByHash(next.keyHash)).toBeTruthy();
    });

    test("a rotation ends the grace period at the old key's own expiry, which the new key shares", async () => {
      const old = await issue({ expiresAtMs: start + hour });
      const next = newKey();
      const rotated = await admin.rotate(old.keyId, 24 * hour, next);
      expect(rotated).toMatchObject({ oldExpiresAtMs: start + hour, expiresAtMs: start + hour });
      await passTime(db, hour);
      expect(await old.find()).toBeUndefined();
      expect(await store.findByHash(next.keyHash)).toBeUndefined();
    });

    test("a rotation without grace ends the old key at once, and no expiry stays none", async () => {
      const old = await issue();
      const rotated = await admin.rotate(old.keyId, 0, newKey());
      expect(rotated).toMatchObject({ oldExpiresAtMs: about(start), expiresAtMs: null });
      expect(await old.find()).toBeNull();
    });

    test("a rotation is possible for valid keys only, and once for each", async () => {
      const revoked = await issue();
      await admin.revoke(revoked.keyId);
      const expired = await issue({ expiresAtMs: start });
      const replaced = await issue();
      const { keyId } = await admin.rotate(replaced.keyId, hour, newKey());
      const rotate = (id: string) => admin.rotate(id, hour, newKey());
      await expect(rotate(revoked.keyId)).rejects.toMatchObject({ code: "key_revoked" });
      await expect(rotate(expired.keyId)).rejects.toMatchObject({ code: "key_expired" });
      await expect(rotate(replaced.keyId)).rejects.toMatchObject({
        code: "key_replaced",
        message: `Key ${replaced.keyId} was replaced already; rotate ${keyId}.`,
      });
      await expect(rotate("key_none")).rejects.toMatchObject({ code: "unknown_key" });
      expect(await admin.list()).toHaveLength(4);
    });

    test("a rotation that is requested several times at once makes one key, and refuses the others", async () => {
      const { keyId } = await issue();
      const results = await Promise.allSettled(Array.from({ length: 4 }, () => admin.rotate(keyId, hour, newKey())));
      const failed = results.filter((result) => result.status === "rejected");
      expect(failed.map(({ reason }) => reason.code)).toEqual(["key_replaced", "key_replaced", "key_replaced"]);
      expect(await admin.list()).toHaveLength(2);
    });

    test("a rotation leaves the old key unchanged when the new one cannot be stored", async () => {
      const other = newKey();
      await issue(other);
      const old = await issue();
      await expect(admin.rotate(old.keyId, 0, other)).rejects.toThrow();
      expect(await old.find()).toBeTruthy();
      expect(await keyOf(old.keyId)).toMatchObject({ replacedBy: null, expiresAtMs: null });
    });
  });

  describe("revocation", () => {
    test("a revocation ends one key for good and no other", async () => {
      const key = await issue();
      const other = await issue();
      expect(await admin.revoke(key.keyId)).toMatchObject({ keyId: key.keyId, account: "acme", revokedAtMs: start });
      expect(await key.find()).toBeNull();
      expect(await other.find()).toBeTruthy();
      nowMs += hour;
      expect(await admin.revoke(key.keyId)).toMatchObject({ revokedAtMs: start });
      expect(keyState(await keyOf(key.keyId), nowMs)).toBe("revoked");
    });

    test("a revocation of an unknown key is refused, and a key given in place of an id is not shown", async () => {
      await expect(admin.revoke("key_none")).rejects.toThrow("There is no key key_none; 'list' shows all.");
      const key = createKey("live", pepper);
      for (const secret of [key, key.slice(0, 30), key.slice(3)]) {
        await expect(admin.revoke(secret)).rejects.toThrow("That is not the id of a key (key_…); 'list' shows all.");
      }
      const { keyId } = await issue();
      await expect(admin.revoke(keyId.toUpperCase())).rejects.toMatchObject({ code: "unknown_key" });
    });
  });

  describe("plans", () => {
    test("a change of plan holds for all keys of an account, and only enterprise has its own limits", async () => {
      const one = await issue({ plan: "free" });
      const two = await issue();
      const limits = { perMinute: 600, perDay: 100_000 };
      expect(await admin.changePlan("acme", "enterprise", limits)).toMatchObject({ plan: "enterprise", limits });
      expect(await one.find()).toMatchObject({ plan: "enterprise", limits });
      expect(await two.find()).toMatchObject({ plan: "enterprise", limits });
      // The same values again, for which a database may report no changed row.
      expect(await admin.changePlan("acme", "enterprise", limits)).toMatchObject({ plan: "enterprise", limits });
      expect(await admin.changePlan(" acme", "pro")).toMatchObject({ account: "acme", plan: "pro", limits: null });
      expect(await one.find()).toMatchObject({ plan: "pro", limits: null });
    });

    test("a change of plan with wrong limits or for an unknown account is refused", async () => {
      const one = await issue({ plan: "pro" });
      const limits = { perMinute: 1, perDay: 1 };
      await expect(admin.changePlan("acme", "enterprise")).rejects.toMatchObject({ code: "invalid_limits" });
      await expect(admin.changePlan("acme", "business", limits)).rejects.toMatchObject({ code: "invalid_limits" });
      await expect(admin.changePlan("ACME", "business")).rejects.toMatchObject({ code: "unknown_account" });
      expect(await one.find()).toMatchObject({ plan: "pro" });
    });
  });

  describe("bans", () => {
    const fiveMinutes = { untilMs: start + 300_000, step: 1, atMs: start };

    test("a ban shows in the look-up and in the list of running bans until it ends", async () => {
      const { keyId, find } = await issue();
      const other = await issue();
      await store.ban(keyId, fiveMinutes);
      await store.ban(other.keyId, { ...fiveMinutes, untilMs: start + 300_001 });
      expect(await find()).toMatchObject({ bannedUntilMs: start + 300_000 });
      expect((await admin.bans()).map((key) => key.keyId)).toEqual([other.keyId, keyId]);
      expect((await admin.bans())[1]).toMatchObject({ bannedAtMs: start, bannedUntilMs: start + 300_000, banStep: 1 });
      nowMs = start + 300_000;
      expect((await admin.bans()).map((key) => key.keyId)).toEqual([other.keyId]);
      expect(await store.lastBan(keyId)).toEqual(fiveMinutes);
    });

    test("a ban never shortens another ban", async () => {
      const { keyId } = await issue();
      const longer = { untilMs: start + 900_000, step: 2, atMs: start + 1 };
      await store.ban(keyId, fiveMinutes);
      await store.ban(keyId, longer);
      await store.ban(keyId, fiveMinutes);
      expect(await store.lastBan(keyId)).toEqual(longer);
    });

    test("a ban can be lifted by an operator, and the next one is a first one again", async () => {
      const { keyId, find } = await issue();
      await store.ban(keyId, fiveMinutes);
      expect(await admin.unban(keyId)).toMatchObject({ key: { keyId, account: "acme" }, lifted: true });
      expect(await find()).toMatchObject({ bannedUntilMs: 0 });
      expect(await store.lastBan(keyId)).toBeUndefined();
      expect(await admin.unban(keyId)).toMatchObject({ lifted: false });
      await expect(admin.unban("key_none")).rejects.toMatchObject({ code: "unknown_key" });
    });

    test("a ban holds for a key and its successors, and ends for all when it is lifted for one", async () => {
      const { keyId, find } = await issue();
      await store.ban(keyId, fiveMinutes);
      const next = newKey();
      const { keyId: nextId } = await admin.rotate(keyId, hour, next);
      const [old, found] = [(await find())!, (await store.findByHash(next.keyHash))!];
      expect(found).toEqual({ ...old, keyId: nextId, expiresAtMs: null, endsInMs: Number.POSITIVE_INFINITY });
      expect(found).toMatchObject({ familyId: keyId, bannedUntilMs: fiveMinutes.untilMs });
      expect((await admin.bans()).map((key) => key.keyId).toSorted()).toEqual([keyId, nextId].toSorted());
      expect(await keyOf(nextId)).toMatchObject({ familyId: keyId, banStep: 1, bannedAtMs: start });
      expect(await admin.unban(nextId)).toMatchObject({ key: { keyId: nextId }, lifted: true });
      expect(await admin.bans()).toEqual([]);
      expect(await find()).toMatchObject({ bannedUntilMs: 0 });
      expect(await store.lastBan(keyId)).toBeUndefined();
    });

    test("a ban is not listed for a key that has ended", async () => {
      const [revoked, expired] = [await issue(), await issue({ expiresAtMs: start + 1 })];
      for (const { keyId } of [revoked, expired]) await store.ban(keyId, fiveMinutes);
      await admin.revoke(revoked.keyId);
      nowMs += 1;
      expect(await admin.bans()).toEqual([]);
    });
  });
});
