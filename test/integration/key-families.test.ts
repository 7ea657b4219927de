import type { Knex } from "knex";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin, type IssueRequest, type KeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, type StoredKey, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { rotateKey, type SuccessorKey } from "../../gateway/accounts/keys/key-rotation.ts";
import { createKeyStore, type KeyStore } from "../../gateway/accounts/keys/key-store.ts";
import { isSqlite } from "../../runtime/database/knex-internals.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { about, hour, passTime } from "../support/key-stores.ts";
import { testPepper } from "../support/made-keys.ts";
import { suiteStack } from "../support/stack.ts";

const start = Date.now();

describeEachDatabase("the keys of a family", (url) => {
  const stack = suiteStack();
  let db: Knex;
  let store: KeyStore;
  let admin: KeyAdmin;
  let nowMs: number;
  const now = () => nowMs;

  const open = () => {
    const opened = openDatabase(url());
    stack.defer(() => opened.destroy());
    return opened;
  };
  /** Another gateway's connections; only one gateway can use SQLite. */
  const another = () => (isSqlite(db) ? db : open());
  beforeAll(async () => {
    db = open();
    await migrate(db, "gateway", gatewayMigrations, "up");
    store = createKeyStore(db);
    admin = createKeyAdmin(db, now);
  });
  beforeEach(async () => {
    nowMs = start;
    for (const table of ["api_keys", "accounts"]) await db(table).delete();
  });

  const newKey = () => storedKey(createKey("test", testPepper), testPepper);
  async function issue(request: Partial<IssueRequest> = {}) {
    const key = newKey();
    return { ...(await admin.issue({ account: "acme", ...key, ...request })), ...key };
  }
  /** Rotates as a caller does. */
  const rotate = (oldId: string, key = newKey(), graceMs = hour, via = db) =>
    rotateKey(via, { oldId, newKey: key, graceMs, replacesUnused: true });
  async function mustRotate(oldId: string, graceMs = hour): Promise<SuccessorKey & StoredKey> {
    const key = newKey();
    const rotated = await rotate(oldId, key, graceMs);
    if (typeof rotated === "string") throw new Error(`${oldId} was not rotated: it is ${rotated}`);
    return { ...rotated, ...key };
  }
  const works = async ({ keyHash }: StoredKey) => !!(await store.findByHash(keyHash));

  test("are replaced while they are unused, each by the next one, and do not shorten the old key", async () => {
    const endMs = start + 100 * hour;
    const old = await issue({ expiresAtMs: endMs, scopes: ["store:read", "keys:rotate"] });
    const lost = await mustRotate(old.keyId, 24 * hour);
    expect(lost).toMatchObject({ expiresAtMs: endMs, oldExpiresAtMs: about(start + 24 * hour), familyId: old.keyId });
    await passTime(db, hour);
    const second = await mustRotate(old.keyId, 24 * hour);
    expect(second).toMatchObject({ expiresAtMs: endMs - hour, oldExpiresAtMs: about(start + 23 * hour) });
    const third = await mustRotate(old.keyId, hour);
    expect(third).toMatchObject({ expiresAtMs: endMs - hour, oldExpiresAtMs: about(start + hour) });
    expect(third.scopes).toEqual(["store:read", "keys:rotate"]);
    expect([await works(old), await works(lost), await works(second), await works(third)]).toEqual([
      true,
      false,
      false,
      true,
    ]);
    await passTime(db, hour);
    expect([await works(old), await works(third)]).toEqual([false, true]);
  });

  test("are not replaced once the first look-up of the new one was answered", async () => {
    const old = await issue();
    const next = await mustRotate(old.keyId);
    const others = [store, createKeyStore(another())];
    const found = await Promise.all([...others, ...others].map((each) => each.findByHash(next.keyHash)));
    expect(found.map((principal) => principal?.keyId)).toEqual(Array(4).fill(next.keyId));
    expect(await rotate(old.keyId)).toBe("replaced");
    expect(await works(next)).toBe(true);
    expect((await admin.list()).find(({ keyId }) => keyId === next.keyId)).toMatchObject({
      lastUsedAtMs: about(start),
    });
  });

  test("are either used or replaced when the first use and a rotation come at once", async () => {
    const [user, other] = [createKeyStore(another()), another()];
    const outcomes = new Set<string>();
    for (let round = 0; round < 30; round++) {
      const old = await issue({ account: `account ${round}` });
      const next = await mustRotate(old.keyId);
      const use = () => user.findByHash(next.keyHash);
      const repeat = () => rotate(old.keyId, newKey(), hour, other);
      const [found, rotated] =
        round % 2 === 0
          ? await Promise.all([use(), repeat()])
          : ((await Promise.all([repeat(), use()])).toReversed() as [Awaited<ReturnType<typeof use>>, string]);
      outcomes.add(`${found ? "used" : "unknown"}, ${typeof rotated === "string" ? rotated : "rotated"}`);
      expect(await works(next)).toBe(Boolean(found));
    }
    expect([...outcomes].filter((each) => each !== "used, replaced" && each !== "unknown, rotated")).toEqual([]);
  });

  test("are at most two that work: a key that is rotated ends its predecessor", async () => {
    const first = await issue();
    const second = await mustRotate(first.keyId);
    expect(await works(second)).toBe(true);
    const third = await mustRotate(second.keyId);
    expect(third.familyId).toBe(first.keyId);
    expect([await works(first), await works(second), await works(third)]).toEqual([false, true, true]);
    expect(await rotate(first.keyId)).toBe("ended");
    const other = await issue();
    await mustRotate(other.keyId);
    expect([await works(second), await works(third)]).toEqual([true, true]);
  });

  test("are two, one after the other, when several gateways rotate one key at once", async () => {
    const old = await issue();
    const gateways = Array.from({ length: 4 }, another);
    const keys = gateways.map(() => newKey());
    const rotated = await Promise.all(gateways.map((gateway, i) => rotate(old.keyId, keys[i], hour, gateway)));
    expect(rotated.map((each) => typeof each)).toEqual(Array(4).fill("object"));
    const alive = await Promise.all(keys.map((key) => works(key)));
    expect(alive.filter(Boolean)).toHaveLength(1);
    expect(await works(old)).toBe(true);
  });

  test("end at once without grace, also when the clock of the database falls back", async () => {
    const old = await issue();
    await mustRotate(old.keyId, 0);
    await passTime(db, -hour);
    expect(await works(old)).toBe(false);
  });

  test("end with their grace by the clock of the database, and make no successor after that", async () => {
    const old = await issue();
    const unused = await mustRotate(old.keyId, 2_000);
    const { endsInMs } = (await store.findByHash(old.keyHash))!;
    expect(endsInMs).toBeLessThanOrEqual(2_000);
    await passTime(db, 2_000);
    const clock = import.meta.jest.spyOn(Date, "now").mockReturnValue(start - 30_000); // that of a gateway
    expect([await works(old), await rotate(old.keyId), await works(unused)]).toEqual([false, "ended", true]);
    clock.mockRestore();
  });

  test("are made of keys that work only", async () => {
    const [revoked, expired] = [await issue(), await issue({ expiresAtMs: start })];
    await admin.revoke(revoked.keyId);
    for (const id of [revoked.keyId, expired.keyId, "key_none"]) expect(await rotate(id)).toBe("ended");
    const old = await issue();
    const next = await mustRotate(old.keyId, 0);
    expect(next.oldExpiresAtMs).toEqual(about(start));
    expect([await works(old), await works(next)]).toEqual([false, true]);
    expect(await rotate(old.keyId)).toBe("ended");
  });

  test("end one by one when revoked, and a key whose unused successor was revoked can be rotated", async () => {
    const old = await issue();
    const next = await mustRotate(old.keyId);
    await admin.revoke(next.keyId);
    expect([await works(old), await works(next)]).toEqual([true, false]);
    const again = await mustRotate(old.keyId);
    await admin.revoke(old.keyId);
    expect([await works(old), await works(again)]).toEqual([false, true]);
  });

  test("share the ban of the family, its ladder and the id under which refusals count", async () => {
    const old = await issue();
    const next = await mustRotate(old.keyId);
    const third = await store.findByHash(next.keyHash).then(() => mustRotate(next.keyId));
    const { familyId } = (await store.findByHash(third.keyHash))!;
    expect(familyId).toBe(old.keyId);
    await store.ban(familyId, { untilMs: start + 900_000, step: 2, atMs: start });
    for (const { keyHash } of [next, third]) {
      expect(await store.findByHash(keyHash)).toMatchObject({ bannedUntilMs: start + 900_000 });
    }
    expect(await store.lastBan(familyId)).toMatchObject({ step: 2 });
  });

  test("cannot be replaced by an operator who rotates a key twice", async () => {
    const old = await issue();
    await admin.rotate(old.keyId, hour, newKey());
    await expect(admin.rotate(old.keyId, hour, newKey())).rejects.toMatchObject({ code: "key_replaced" });
  });

  test("all end with those of their account, of which no other loses one", async () => {
    const old = await issue();
    const next = await mustRotate(old.keyId);
    const [lone, stranger, gone] = [await issue(), await issue({ account: "other" }), await issue()];
    await admin.revoke(gone.keyId);
    nowMs += 1;
    const { account, keyIds, revokedAtMs } = await admin.revokeAll("acme");
    expect(account.account).toBe("acme");
    expect(new Set(keyIds)).toEqual(new Set([old.keyId, next.keyId, lone.keyId]));
    expect(revokedAtMs).toBe(nowMs);
    expect(await Promise.all([old, next, lone, stranger].map(works))).toEqual([false, false, false, true]);
    nowMs += 1;
    expect((await admin.revokeAll("acme")).keyIds).toEqual([]);
    await expect(admin.revokeAll("none")).rejects.toMatchObject({ code: "unknown_account" });
  });

  test("all end when their account is revoked while they are being rotated", async () => {
    const gateway = another();
    for (let round = 0; round < 15; round++) {
      const account = `account ${round}`;
      let { keyId } = await issue({ account });
      const rotating = (async () => {
        for (;;) {
          await new Promise(setImmediate); // SQLite works without leaving the thread
          const rotated = await rotate(keyId, newKey(), hour, gateway);
          if (rotated === "ended") return;
          keyId = (rotated as SuccessorKey).keyId;
        }
      })();
      for (let turn = 0; turn < round; turn++) await new Promise(setImmediate);
      await admin.revokeAll(account);
      await rotating;
      const left = (await admin.list(account)).filter(({ revokedAtMs }) => revokedAtMs === null);
      expect(left).toEqual([]);
    }
  });
});
