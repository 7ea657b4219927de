import { setTimeout as delay } from "node:timers/promises";
import { databaseDefaults } from "../../runtime/database/open.ts";
import { createMysqlDatabase, createSqliteDatabase, dropDatabase } from "../support/databases.ts";
import { bothIn, command, outputOf } from "../support/migrate-command.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { holdWriteLock, untilRunning } from "../support/open-stock.ts";
import { freePort } from "../support/ports.ts";
import { runScript } from "../support/processes.ts";

describe("commands that migrate (MySQL/MariaDB)", () => {
  test.concurrent.each([
    ["npm run stock", "inventory", "inventory-svc/cli/stock.ts", "export"],
    ["npm run keys", "gateway", "gateway/accounts/cli/keys.ts", "list"],
  ])("%s waits longer for the statements of a migration than for its others", async (_name, schema, script, name) => {
    const url = await createMysqlDatabase();
    expect(await command(bothIn(url))).toMatchObject({ code: 0 });
    const other = await connectMysql(url);
    await other.query(`LOCK TABLES ${schema}_migrations WRITE`);
    const running = runScript({ script, args: [name], env: bothIn(url) });
    await untilRunning(url, "select");
    // The silence after which a connection of the services would be closed, and some more.
    const silence = delay(databaseDefaults.silenceTimeoutMs + 1_000, "still waiting");
    expect(await Promise.race([running, silence])).toBe("still waiting");
    await other.end();
    expect(await running).toMatchObject({ code: 0 });
    await dropDatabase(url);
  });
});

test("commands that only read write nothing where the schema is up to date", async () => {
  const url = await createSqliteDatabase();
  expect(await command(bothIn(url))).toMatchObject({ code: 0 });
  const lock = await holdWriteLock(url);
  const run = (script: string, ...args: string[]) => runScript({ script, args, env: bothIn(url) });
  expect(await run("inventory-svc/cli/stock.ts", "export")).toMatchObject({ code: 0 });
  expect(await run("gateway/accounts/cli/keys.ts", "list")).toMatchObject({ code: 0 });
  await lock.release();
  await dropDatabase(url);
});

describe("npm run migrate", () => {
  const secret = "s3cret";

  test.each([
    `postgres://pets:${secret}@127.0.0.1/stock`,
    `mysql://pets:${secret}@127.0.0.1`,
    `mysql://pets:${secret}%zz@127.0.0.1/stock`,
    `pets:${secret}@127.0.0.1/stock`,
    "sqlite:",
  ])("exits 78 for the URL %s, and names the settings without their values", async (url) => {
    const { code, stdout, stderr } = await command(bothIn(url));
    expect({ code, stdout }).toEqual({ code: 78, stdout: "" });
    expect(stderr).toMatch(
      /^The configuration has 2 faults:\n {2}GATEWAY_DATABASE_URL: must be .*\n {2}INVENTORY_DATABASE_URL: must be .*\n$/,
    );
    expect(stderr).not.toContain(secret);
  });

  test.each([
    ["a missing server", async () => `mysql://pets:${secret}@127.0.0.1:${await freePort()}/stock`],
    ["a server that refuses the account", async () => wrongPassword()],
    ["a file that cannot be created", async () => `sqlite:${import.meta.filename}/stock.sqlite`],
  ])("exits 1 for %s, without the password", async (_what, urlOf) => {
    const { code, stdout, stderr } = await command(bothIn(await urlOf()));
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^GATEWAY_DATABASE_URL \(gateway\): [^\n]+\n$/);
    expect(stderr).not.toContain(secret);
  });

  test("exits 1 when a step fails, after taking the steps before it", async () => {
    const url = await createMysqlDatabase();
    const other = await connectMysql(url);
    await other.query("CREATE TABLE inventory_migrations (something_else INT)");
    const { code, stdout, stderr } = await command(bothIn(url));
    expect({ code, stdout }).toEqual({ code: 1, stdout: outputOf(["gateway"]) });
    expect(stderr).toMatch(/^INVENTORY_DATABASE_URL \(inventory-svc\): [^\n]+\n$/);
    await other.end();
    await dropDatabase(url);
  });

  test.each([
    "--down",
    "--drop-data",
    "--down --only",
    "--down --only gatway",
    "--down --only=stock",
    "--down inventory",
    "--dwon",
  ])("refuses %s with exit code 64 and changes nothing", async (args) => {
    const url = await createMysqlDatabase();
    expect((await command(bothIn(url))).code).toBe(0);
    const { code, stdout, stderr } = await command(bothIn(url), ...args.split(" "));
    expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
    expect(stderr).toMatch(/^error: /);
    expect(await command(bothIn(url))).toMatchObject({
      code: 0,
      stdout: "gateway: nothing to do\ninventory: nothing to do\n",
    });
    await dropDatabase(url);
  });

  test("migrates one tier with --only, up and down", async () => {
    const url = await createMysqlDatabase();
    expect((await command(bothIn(url), "--only", "inventory")).stdout).toBe(outputOf(["inventory"]));
    expect((await command(bothIn(url), "--down", "--only=inventory")).stdout).toBe(
      "inventory: down 0006_stock_writes\n",
    );
    await dropDatabase(url);
  });

  test("lists its settings with --help", async () => {
    const { code, stdout } = await command({}, "--help");
    expect(code).toBe(0);
    expect(stdout).toMatch(/--down[\s\S]*GATEWAY_DATABASE_URL[\s\S]*INVENTORY_DATABASE_URL/);
  });

  function wrongPassword(): string {
    const url = new URL(process.env.TEST_MYSQL_SERVER_URL!);
    url.password = secret;
    url.pathname = "/stock";
    return url.href;
  }
});
