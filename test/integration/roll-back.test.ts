// The code goes back to a version before the one that migrated: its commands meet a schema with steps they do not know.
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { createSqliteDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { testPepper } from "../support/made-keys.ts";
import { bothIn, command, schemas } from "../support/migrate-command.ts";
import { runScript, startScript } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";

const scripts = { keys: "gateway/accounts/cli/keys.ts", stock: "inventory-svc/cli/stock.ts" };

describeEachDatabase("the schemas of a later version", (url) => {
  beforeAll(async () => {
    const db = openDatabase(url());
    const later = { name: "9999_later", up: async () => {}, down: async () => {} };
    for (const [schema, migrations] of schemas) await migrate(db, schema, [...migrations, later], "up");
    await db.destroy();
  });
  const run = (script: keyof typeof scripts, ...args: string[]) =>
    runScript({ script: scripts[script], args, env: { ...bothIn(url()), KEY_PEPPER: testPepper } });

  test("are taken as they are by all commands that change no schema", async () => {
    const issued = await run("keys", "issue", "--account", "acme", "--json");
    expect(issued).toMatchObject({ code: 0, stderr: "" });
    const { keyId } = JSON.parse(issued.stdout);
    for (const args of [["list"], ["bans"], ["unban", keyId], ["usage"], ["revoke", keyId]]) {
      expect(await run("keys", ...args)).toMatchObject({ code: 0, stderr: "" });
    }
    for (const args of [["import", "--generate", "2"], ["history", "1"], ["export"], ["restored"]]) {
      expect(await run("stock", ...args)).toMatchObject({ code: 0 });
    }
  });

  test("leave npm run migrate nothing to do, and nothing that it takes back", async () => {
    const later = "a later version has made 9999_later, and it alone can take that back\n";
    expect(await command(bothIn(url()))).toEqual({
      code: 0,
      stdout: "gateway: nothing to do\ninventory: nothing to do\n",
      stderr: `gateway: ${later}inventory: ${later}`,
    });
    const down = await command(bothIn(url()), "--down", "--only", "inventory");
    expect(down).toEqual({ code: 1, stdout: "", stderr: `INVENTORY_DATABASE_URL (inventory-svc): ${later}` });
  });
});

describe("a mistyped path of an SQLite file", () => {
  const stack = suiteStack();
  let folder: string;
  let env: Record<string, string>;
  beforeAll(async () => {
    const url = await createSqliteDatabase();
    stack.defer(() => dropDatabase(url));
    folder = join(dirname(url.slice("sqlite:".length)), "mistyped");
    env = { ...bothIn(`sqlite:${folder}/shop.sqlite`), KEY_PEPPER: testPepper };
  });
  const missing = () =>
    `there is no SQLite file ${folder}/shop.sqlite: correct its path, or run npm run migrate (in the package: npx petstore-migrate)`;

  test("makes no database for npm run keys and npm run stock, which name the setting", async () => {
    for (const [script, args, setting] of [
      [scripts.keys, ["issue", "--account", "acme"], "GATEWAY_DATABASE_URL (gateway)"],
      [scripts.stock, ["import", "--generate", "1"], "INVENTORY_DATABASE_URL (inventory-svc)"],
    ] as const) {
      expect(await runScript({ script, args, env })).toEqual({
        code: 1,
        stdout: "",
        stderr: `${setting}: ${missing()}\n`,
      });
    }
    expect(existsSync(folder)).toBe(false);
  });

  test.each(["inventory-svc/main.ts", "gateway/main.ts"])("makes no database for %s, which waits", async (script) => {
    const port = "127.0.0.1:0";
    const addresses = {
      INVENTORY_LISTEN: port,
      INVENTORY_ADMIN_LISTEN: port,
      GATEWAY_LISTEN: port,
      GATEWAY_ADMIN_LISTEN: port,
    };
    const child = await startScript({ name: script, script, env: { ...addresses, ...env } });
    stack.defer(() => child.kill("SIGKILL"));
    const line = await child.waitForLine((text) => (text.includes("not ready yet") ? text : undefined), 30_000);
    expect(JSON.parse(line).reason).toContain(missing());
    expect(existsSync(folder)).toBe(false);
  });

  test("is a new database for npm run migrate", async () => {
    expect(await command(env)).toMatchObject({ code: 0 });
    expect(existsSync(`${folder}/shop.sqlite`)).toBe(true);
  });
});
