import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hashKey, isWellFormed } from "../../gateway/accounts/keys/key-format.ts";
import { createKeyStore, type KeyStore } from "../../gateway/accounts/keys/key-store.ts";
import { ensurePepper } from "../../gateway/accounts/keys/pepper.ts";
import { createUsageStore, type UsageStore } from "../../gateway/accounts/usage/usage-store.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { runScript } from "../support/processes.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";

const pepper = "pepper-of-the-test-with-32-chars!";
const unknownTime = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

describe("npm run keys", () => {
  const stack = suiteStack();
  let cwd: string;
  let databaseUrl: string;

  beforeEach(async () => {
    const folder = await temporaryFolder("keys");
    stack.defer(() => folder.remove());
    cwd = folder.path;
    databaseUrl = `sqlite:${join(cwd, "keys.sqlite")}`;
    await writeFile(join(cwd, "keys.sqlite"), "");
  });

  const keys = (args: string[], env: Record<string, string> = {}) =>
    runScript({
      script: "gateway/accounts/cli/keys.ts",
      args,
      cwd,
      env: { GATEWAY_DATABASE_URL: databaseUrl, KEY_PEPPER: pepper, ...env },
    });
  /** Runs a command that must succeed and print nothing to standard error. */
  async function run(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await keys(args);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return stdout;
  }
  const json = async (...args: string[]) => JSON.parse(await run(...args, "--json"));
  async function withStores<T>(work: (keys: KeyStore, usage: UsageStore) => Promise<T>): Promise<T> {
    const db = openDatabase(databaseUrl);
    try {
      return await work(createKeyStore(db), createUsageStore(db));
    } finally {
      await db.destroy();
    }
  }
  const find = (key: string) => withStores((store) => store.findByHash(hashKey(key, pepper)));

  test("keys issue works on an empty database and prints a valid key", async () => {
    const issued = await json("issue", "--account", "acme", "--plan", "pro");
    expect(Object.keys(issued)).toEqual(["keyId", "key", "account", "plan"]);
    expect(issued).toMatchObject({ account: "acme", plan: "pro" });
    expect(issued.key).toMatch(/^ps_live_/);
    expect(isWellFormed(issued.key)).toBe(true);
    expect(await find(issued.key)).toMatchObject({ keyId: issued.keyId, plan: "pro" });
  });

  test("keys issue takes scopes, an expiry and limits, and the key has the deployment's env", async () => {
    const args = ["issue", "--account", "big", "--plan", "enterprise", "--per-minute", "600", "--per-day", "90000"];
    const more = ["--scopes", "store:read, inventory:read", "--expires", "2999-12-31T23:59:59+01:00", "--json"];
    const { stdout } = await keys([...args, ...more], { GATEWAY_KEY_ENV: "staging" });
    const { key } = JSON.parse(stdout);
    expect(key).toMatch(/^ps_staging_/);
    expect(await find(key)).toMatchObject({
      plan: "enterprise",
      limits: { perMinute: 600, perDay: 90_000 },
      scopes: new Set(["inventory:read", "store:read"]),
      expiresAtMs: Date.UTC(2999, 11, 31, 22, 59, 59),
    });
  });

  test("keys issue shows the key once, and no command shows it again", async () => {
    const shown = await run("issue", "--account", "acme");
    const key = /ps_live_\w+/.exec(shown)![0];
    expect(shown).toContain("it is not shown again");
    expect(isWellFormed(key)).toBe(true);
    const secret = key.slice("ps_live_".length);
    const hash = hashKey(key, pepper);
    for (const command of ["list", "bans", "usage"]) {
      for (const args of [[command], [command, "--json"]]) {
        const output = await run(...args);
        for (const text of [secret, hash.toString("hex"), hash.toString("base64"), pepper, '"type":"Buffer"']) {
          expect(output).not.toContain(text);
        }
      }
    }
  });

  test("keys list shows each key on a line, and every detail as JSON", async () => {
    expect(await run("list")).toBe("There are no keys; 'issue' makes one.\n");
    expect(await json("list")).toEqual([]);
    const first = await json("issue", "--account", "acme", "--plan", "pro");
    const second = await json("issue", "--account", "acme", "--expires", "2999-01-01");
    await json("issue", "--account", "other");
    expect((await run("list")).trimEnd().split("\n")).toHaveLength(4);
    const listed = await json("list", "--account", "acme");
    expect(new Set(listed.map(({ keyId }: { keyId: string }) => keyId))).toEqual(new Set([first.keyId, second.keyId]));
    expect(listed.find(({ keyId }: { keyId: string }) => keyId === second.keyId)).toEqual({
      keyId: second.keyId,
      account: "acme",
      plan: "pro",
      state: "active",
      env: "live",
      scopes: ["inventory:read", "inventory:write", "store:read"],
      createdAt: unknownTime,
      expiresAt: "2999-01-01T00:00:00.000Z",
      revokedAt: null,
      replacedBy: null,
      lastUsedAt: null,
    });
  });

  test("keys rotate makes a new key, and the old one works until the grace period ends", async () => {
    const old = await json("issue", "--account", "acme", "--plan", "business");
    const before = Date.now();
    const rotated = await json("rotate", old.keyId, "--grace", "30m");
    expect(Object.keys(rotated)).toEqual(["keyId", "key", "account", "plan", "oldKeyExpiresAt"]);
    expect(rotated).toMatchObject({ account: "acme", plan: "business" });
    const graceMs = Date.parse(rotated.oldKeyExpiresAt) - before;
    expect(graceMs).toBeGreaterThanOrEqual(30 * 60_000);
    expect(graceMs).toBeLessThan(31 * 60_000);
    expect(await find(old.key)).toMatchObject({ keyId: old.keyId, expiresAtMs: Date.parse(rotated.oldKeyExpiresAt) });
    expect(await find(rotated.key)).toMatchObject({ keyId: rotated.keyId, expiresAtMs: null });

    const next = await json("rotate", rotated.keyId); // a day by default
    expect(Math.round((Date.parse(next.oldKeyExpiresAt) - before) / 3_600_000)).toBe(24);
    expect(await run("rotate", next.keyId, "--grace", "0s")).toMatch(/\n {2}ps_live_\w+\n/);
    expect(await find(next.key)).toBeNull();
  });

  test("keys rotate ends the grace period at the old key's own expiry", async () => {
    const end = new Date(Date.now() + 600_000).toISOString();
    const old = await json("issue", "--account", "acme", "--expires", end);
    const rotated = await json("rotate", old.keyId, "--grace", "7d");
    expect(rotated.oldKeyExpiresAt).toBe(end);
    expect(await find(rotated.key)).toMatchObject({ expiresAtMs: Date.parse(end) });
  });

  test("keys revoke ends a key, and may be repeated", async () => {
    const { keyId, key } = await json("issue", "--account", "acme");
    const revoked = await json("revoke", keyId);
    expect(revoked).toEqual({ keyId, account: "acme", revokedAt: unknownTime });
    expect(await json("revoke", keyId)).toEqual(revoked);
    expect(await find(key)).toBeNull();
    expect(await run("list")).toContain("revoked");
  });

  test("keys revoke ends several keys in one call, and no other", async () => {
    const one = await json("issue", "--account", "acme");
    const two = await json("issue", "--account", "beta");
    const other = await json("issue", "--account", "acme");
    const lines = (await run("revoke", one.keyId, two.keyId, "--json")).trimEnd().split("\n");
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      { keyId: one.keyId, account: "acme", revokedAt: unknownTime },
      { keyId: two.keyId, account: "beta", revokedAt: unknownTime },
    ]);
    expect([await find(one.key), await find(two.key), await find(other.key)]).toEqual([null, null, expect.anything()]);
    expect(await keys(["revoke", "key_none", other.keyId])).toMatchObject({ code: 1, stdout: "" });
    expect(await find(other.key)).toBeTruthy();
  });

  test("keys revoke --account ends every key of the account and no other, and says how many", async () => {
    const keyIds = [(await json("issue", "--account", "acme")).keyId, (await json("issue", "--account", "acme")).keyId];
    const other = await json("issue", "--account", "other");
    const ended = await json("revoke", "--account", "acme");
    expect(ended).toEqual({ account: "acme", keyIds: keyIds.toSorted(), revokedAt: unknownTime });
    expect(await find(other.key)).toBeTruthy();
    expect(await run("revoke", "--account", "acme")).toBe("Account 'acme': no key worked any more.\n");
    expect(await run("revoke", "--account", "other")).toBe("Account 'other': 1 key is revoked.\n");
    expect(await find(other.key)).toBeNull();
  });

  test("keys issue gives the scope that rotates keys only where it is asked for", async () => {
    const usual = await json("issue", "--account", "acme");
    const rotating = await json("issue", "--account", "acme", "--scopes", "store:read,keys:rotate");
    expect((await find(usual.key))!.scopes).toEqual(new Set(["inventory:read", "inventory:write", "store:read"]));
    expect((await find(rotating.key))!.scopes).toEqual(new Set(["store:read", "keys:rotate"]));
  });

  test("keys bans shows a ban and keys unban lifts it", async () => {
    const { keyId } = await json("issue", "--account", "acme");
    expect(await run("bans")).toBe("No key is banned.\n");
    const atMs = Date.now();
    const untilMs = atMs + 300_000;
    await withStores((store) => store.ban(keyId, { atMs, untilMs, step: 2 }));
    const times = { bannedAt: new Date(atMs).toISOString(), bannedUntil: new Date(untilMs).toISOString() };
    expect(await json("bans")).toEqual([{ keyId, account: "acme", step: 2, ...times }]);
    expect(await run("bans")).toContain(keyId);
    expect(await json("unban", keyId)).toEqual({ keyId, account: "acme", lifted: true });
    expect(await json("bans")).toEqual([]);
    expect(await run("unban", keyId)).toContain("was not banned");
  });

  test("keys plan changes an account's plan and keys usage shows it", async () => {
    const { key } = await json("issue", "--account", "acme");
    const { accountId, keyId } = (await find(key))!;
    const limits = { perMinute: 5, perDay: 3 };
    const planArgs = ["plan", "--account", "acme", "--plan"];
    expect(await json(...planArgs, "enterprise", "--per-minute", "5", "--per-day", "3")).toEqual({
      account: "acme",
      plan: "enterprise",
      limits,
    });
    expect(await find(key)).toMatchObject({ plan: "enterprise", limits });
    expect(await run("usage")).toContain("enterprise (5/min, 3/day)");
    expect(await json(...planArgs, "pro")).toEqual({ account: "acme", plan: "pro", limits: null });
    const atMs = Date.UTC(2026, 0, 31);
    await withStores(async (_keys, usage) => {
      await usage.touch([{ keyId, atMs }]);
      await usage.countDeprecatedUse([{ accountId, operation: "getPet", requests: 7, atMs }]);
      const minuteStartMs = Math.floor(Date.now() / 60_000) * 60_000;
      await usage.addMinutes([
        { accountId, minuteStartMs, requests: 9, refused: 2 },
        { accountId, minuteStartMs: minuteStartMs - 2 * 86_400_000, requests: 100, refused: 1 },
      ]);
    });
    expect(await json("usage")).toEqual([
      {
        account: "acme",
        plan: "pro",
        limits: null,
        keys: 1,
        validKeys: 1,
        lastUsedAt: "2026-01-31T00:00:00.000Z",
        served: 7,
        refused: 2,
        deprecatedRequests: 7,
        deprecatedLastDay: "2026-01-31",
        deprecated: { getPet: 7 },
      },
    ]);
    expect(await json("usage", "--last", "3d")).toMatchObject([{ served: 106, refused: 3 }]);
    expect(await run("usage")).toMatch(/SERVED +REFUSED .*\nacme .* 7 +2 +7 /);
  });

  test("a refused command of keys exits 1 with the reason in one line", async () => {
    const { keyId } = await json("issue", "--account", "acme", "--plan", "pro");
    await run("revoke", keyId);
    const refusals: [string[], RegExp][] = [
      [["revoke", "key_none"], /There is no key key_none/],
      [["revoke", "--account", "none"], /There is no account 'none'/],
      [["rotate", keyId], /is revoked/],
      [["list", "--account", "none"], /There is no account 'none'/],
      [["issue", "--account", "acme", "--plan", "free"], /is on the plan pro; change it with 'keys plan'/],
      [["issue", "--account", "b", "--plan", "enterprise"], /needs limits of its own: --per-minute and --per-day/],
    ];
    for (const [args, message] of refusals) {
      const { code, stdout, stderr } = await keys(args);
      expect({ args, code, stdout }).toEqual({ args, code: 1, stdout: "" });
      expect(stderr).toMatch(message);
      expect(stderr.trimEnd()).not.toContain("\n");
    }
  });

  test("wrong usage of keys exits 64 and changes nothing", async () => {
    const issue = ["issue", "--account", "a"];
    const wrong = [
      [],
      ["mint"],
      ["issue"],
      ["rotate", "key_1", "--grace", "24"],
      ["revoke"],
      ["revoke", "key_1", "--account", "a"],
      [...issue, "--plan", "gold"],
      [...issue, "--plan", "enterprise", "--per-minute", "5"],
      [...issue, "--expires", "2020-01-01"],
      [...issue, "more"],
      ["plan"],
      ["plan", "--account", "a"],
      ["plan", "--plan", "pro"],
    ];
    for (const args of wrong) {
      const { code, stdout, stderr } = await keys(args);
      expect({ args, code, stdout }).toEqual({ args, code: 64, stdout: "" });
      if (args.length > 0) expect(stderr).toMatch(/^error: /);
      expect(stderr).not.toMatch(/\n\s+at /);
    }
    expect(await json("usage")).toEqual([]);
  });

  test("a wrong configuration of keys exits 78, names every fault and stores nothing", async () => {
    const issue = ["issue", "--account", "a"];
    const missing = await keys(issue, { KEY_PEPPER: "" });
    expect(missing).toMatchObject({ code: 78, stdout: "" });
    expect(missing.stderr).toMatch(/KEY_PEPPER: is required/);
    const wrong = await keys(issue, { KEY_PEPPER: "hunter2", GATEWAY_DATABASE_URL: "db", GATEWAY_KEY_ENV: "A" });
    expect(wrong.code).toBe(78);
    expect(
      wrong.stderr
        .trim()
        .split("\n")
        .slice(1)
        .map((line) => line.trim().split(":")[0]),
    ).toEqual(["GATEWAY_DATABASE_URL", "KEY_PEPPER", "GATEWAY_KEY_ENV"]);
    expect(missing.stderr + wrong.stderr).not.toMatch(/hunter2|\n\s+at /);
    expect(await json("usage")).toEqual([]);
  });

  test("only commands of keys that make a key need the pepper", async () => {
    const { keyId } = await json("issue", "--account", "acme");
    for (const args of [["list"], ["bans"], ["usage"], ["unban", keyId], ["revoke", keyId]]) {
      expect(await keys(args, { KEY_PEPPER: "" })).toMatchObject({ code: 0 });
    }
    expect(await keys(["rotate", keyId], { KEY_PEPPER: "" })).toMatchObject({ code: 78 });
  });

  test("the default database and pepper of keys are those of npm start", async () => {
    const kept = ensurePepper(join(cwd, ".data"));
    await writeFile(join(cwd, ".data/gateway.sqlite"), "");
    const { code, stdout } = await keys(["issue", "--account", "acme", "--json"], {
      GATEWAY_DATABASE_URL: "",
      KEY_PEPPER: "",
    });
    expect(code).toBe(0);
    databaseUrl = `sqlite:${join(cwd, ".data/gateway.sqlite")}`;
    const found = await withStores((store) => store.findByHash(hashKey(JSON.parse(stdout).key, kept)));
    expect(found).toBeDefined();
  });

  test("the settings of keys are read from a .env file", async () => {
    await mkdir(join(cwd, "data"));
    await writeFile(join(cwd, "data/k.sqlite"), "");
    await writeFile(join(cwd, ".env"), `KEY_PEPPER=${pepper}\nGATEWAY_DATABASE_URL=sqlite:data/k.sqlite\n`);
    const { code, stdout } = await runScript({
      script: "gateway/accounts/cli/keys.ts",
      args: ["issue", "--account", "acme", "--json"],
      cwd,
    });
    expect(code).toBe(0);
    databaseUrl = `sqlite:${join(cwd, "data/k.sqlite")}`;
    expect(await find(JSON.parse(stdout).key)).toBeDefined();
  });

  test("keys warns of a name in the .env file that is nearly a setting", async () => {
    await writeFile(join(cwd, ".env"), "GATEWAY_KEYENV=prod\n");
    expect(await keys(["list"])).toMatchObject({
      code: 0,
      stderr: ".env: GATEWAY_KEYENV is no setting and has no effect; GATEWAY_KEY_ENV is one\n",
    });
  });

  test("five operators that issue keys at once on an empty database make one account", async () => {
    const args = ["issue", "--account", "acme", "--plan", "pro"];
    const issued = await Promise.all(Array.from({ length: 5 }, () => json(...args)));
    expect(new Set(issued.map(({ keyId }) => keyId)).size).toBe(5);
    expect(await json("usage")).toMatchObject([{ account: "acme", keys: 5 }]);
  });

  test("the help of keys names every command and setting", async () => {
    const help = await run("--help");
    for (const word of ["issue", "list", "rotate", "revoke", "bans", "unban", "plan", "usage"]) {
      expect(help).toContain(`  ${word} `);
    }
    for (const name of ["GATEWAY_DATABASE_URL", "KEY_PEPPER", "GATEWAY_KEY_ENV"]) expect(help).toContain(name);
    expect(await run("issue", "--help")).toContain("--per-minute");
  });
});
