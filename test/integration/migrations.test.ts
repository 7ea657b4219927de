import { setTimeout as delay } from "node:timers/promises";
import type { Knex } from "knex";
import type { Connection } from "mysql2/promise";
import { keyMigrations } from "../../gateway/auth/migrations.ts";
import { stockMigrations } from "../../inventory-svc/db/migrations.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database.ts";
import { type Migration, migrate } from "../../runtime/migrations.ts";
import { type Stack, suiteStack } from "../support/cleanup.ts";
import { createMysqlDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { freePort } from "../support/ports.ts";
import { cleanup, runScript, startScript } from "../support/processes.ts";

const schemas = [
  ["gateway", keyMigrations, ["accounts", "api_keys", "deprecated_use"]],
  ["inventory", stockMigrations, ["stock", "stock_head"]],
] as const;
const allTables = schemas.flatMap(([, , tables]) => tables);

async function tablesOf(db: Knex): Promise<string[]> {
  const has = await Promise.all(allTables.map((table) => db.schema.hasTable(table)));
  return allTables.filter((_, i) => has[i]);
}

function opener(stack: Stack, url: () => string) {
  return (silenceTimeoutMs = databaseDefaults.silenceTimeoutMs) => {
    const db = openDatabase(url(), { ...databaseDefaults, silenceTimeoutMs });
    stack.defer(() => db.destroy());
    return db;
  };
}

/** What the command does to both schemas, or to those that `args` names. */
const command = (env: Record<string, string>, ...args: string[]) =>
  runScript({ script: "deploy/migrate.ts", args, env });
const bothIn = (url: string) => ({ GATEWAY_DATABASE_URL: url, INVENTORY_DATABASE_URL: url });

describeEachDatabase("migrations", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  const open = opener(stack, url);

  afterEach(async () => {
    const db = open();
    for (const [schema, migrations] of schemas) await migrate(db, schema, migrations, "down");
    expect(await tablesOf(db)).toEqual([]);
    for (const [schema] of schemas) {
      await db.schema.dropTableIfExists(`${schema}_migrations`);
      await db.schema.dropTableIfExists(`${schema}_migrations_lock`);
    }
  });

  test.each(schemas)("the schema of %s goes up, down to nothing, and up again", async (schema, migrations, tables) => {
    const db = open();
    const names = migrations.map(({ name }) => name);
    for (let round = 0; round < 2; round++) {
      expect(await migrate(db, schema, migrations, "up")).toEqual(names);
      expect(await migrate(db, schema, migrations, "up")).toEqual([]);
      expect((await tablesOf(db)).toSorted()).toEqual(tables.toSorted());
      for (const name of names.toReversed()) expect(await migrate(db, schema, migrations, "down")).toEqual([name]);
      expect(await migrate(db, schema, migrations, "down")).toEqual([]);
      expect(await tablesOf(db)).toEqual([]);
    }
  });

  test("both schemas live in one database: one goes down and the other keeps its data", async () => {
    const up = await command(bothIn(url()));
    expect(up).toEqual({ code: 0, stdout: "gateway: up 0001_keys\ninventory: up 0001_stock\n", stderr: "" });
    const db = open();
    await db("stock").insert({ pet_id: 7, quantity: 1, status: "sold", revision: 1, removed: 0 });
    expect(await command(bothIn(url()), "--down", "--only", "gateway")).toMatchObject({
      stdout: "gateway: down 0001_keys\n",
    });
    expect(await tablesOf(db)).toEqual(["stock", "stock_head"]);
    expect(await db("stock")).toHaveLength(1);
    expect(await command(bothIn(url()))).toMatchObject({ stdout: "gateway: up 0001_keys\ninventory: nothing to do\n" });
    expect(await tablesOf(db)).toEqual(allTables);
  });

  test("five processes at once all succeed, and each step is taken once", async () => {
    const results = await Promise.all(Array.from({ length: 5 }, () => command(bothIn(url()))));
    expect(results.map(({ code, stderr }) => ({ code, stderr }))).toEqual(Array(5).fill({ code: 0, stderr: "" }));
    for (const step of ["gateway: up 0001_keys", "inventory: up 0001_stock"]) {
      expect(results.filter(({ stdout }) => stdout.includes(step))).toHaveLength(1);
    }
    const db = open();
    expect(await db("stock_head")).toHaveLength(1);
    for (const [schema, migrations] of schemas)
      expect(await db(`${schema}_migrations`)).toHaveLength(migrations.length);
  });

  test("a process that is killed in the middle stops nobody: who waits for it goes on", async () => {
    const dying = await startScript({
      name: "dying",
      script: "test/support/stuck-migration.ts",
      env: { INVENTORY_DATABASE_URL: url() },
    });
    await dying.waitForLine((line) => line === "stuck" || undefined, 20_000);
    const waiting = await startScript({ name: "waiting", script: "deploy/migrate.ts", env: bothIn(url()) });
    expect(await Promise.race([waiting.exited, delay(1_000, "still waiting")])).toBe("still waiting");
    await dying.kill("SIGKILL");
    expect(await waiting.exited).toBe(0);
    expect(waiting.output()).toBe("gateway: up 0001_keys\ninventory: up 0001_stock");
    expect(await open()("stock_head")).toHaveLength(1);
  });

  // MySQL commits every statement of a schema by itself.
  test("a run that failed after any of its statements is taken up by the next", async () => {
    const db = open();
    let last = false;
    let failures = 0;
    for (let survived = 0; !last; survived++) {
      let left = survived;
      const fail = () => {
        if (left-- === 0) throw new Error("the connection broke");
      };
      const failing = stockMigrations.map((migration) => ({
        ...migration,
        up: async (trx: Knex) => {
          trx.on("query-response", fail);
          await migration.up(trx);
          trx.removeListener("query-response", fail);
          last = true;
        },
      }));
      const run = migrate(db, "inventory", failing, "up");
      if (
        await run.then(
          () => false,
          () => true,
        )
      )
        failures += 1;
      expect(await migrate(db, "inventory", stockMigrations, "up")).toEqual(last ? [] : ["0001_stock"]);
      expect(await db("stock_head")).toMatchObject([{ id: expect.anything(), revision: 0n }]);
      await db("stock").insert({ pet_id: 7, quantity: 1, status: "sold", revision: 1, removed: 0 });
      await migrate(db, "inventory", stockMigrations, "down");
    }
    expect(failures).toBeGreaterThan(3);
  });
});

describe("the lock of migrations (MySQL/MariaDB)", () => {
  const stack = suiteStack();
  let url: string;
  const open = opener(stack, () => url);
  beforeAll(async () => {
    url = await createMysqlDatabase();
    stack.defer(() => dropDatabase(url));
  });

  const lockName = () => `petstore-migrate:${new URL(url).pathname.slice(1)}`;
  async function ask(connection: Connection, question: string): Promise<number> {
    const [rows] = await connection.query(question, [lockName()]);
    return (rows as { answer: number }[])[0]!.answer;
  }

  test("is waited for, for longer than a connection may be silent", async () => {
    const other = await connectMysql(url);
    await other.query("SELECT GET_LOCK(?, 0)", [lockName()]);
    const waiting = migrate(open(200), "inventory", stockMigrations, "up");
    expect(await Promise.race([waiting, delay(600, "still waiting")])).toBe("still waiting");
    await other.end();
    expect(await waiting).toEqual(["0001_stock"]);
  });

  test("is held for as long as the migration takes", async () => {
    const other = await connectMysql(url);
    stack.defer(() => other.end());
    const held: unknown[] = [];
    const slow: Migration = {
      name: "0001_slow",
      up: async (db) => {
        for (let i = 0; i < 6; i++) {
          await db.raw("SELECT SLEEP(0.1)");
          held.push(await ask(other, "SELECT IS_USED_LOCK(?) IS NOT NULL AS answer"));
        }
      },
      down: async () => {},
    };
    expect(await migrate(open(200), "slow", [slow], "up")).toEqual(["0001_slow"]);
    expect(held).toEqual([1, 1, 1, 1, 1, 1]);
    expect(await ask(other, "SELECT IS_FREE_LOCK(?) AS answer")).toBe(1);
  });
});

describe("npm run migrate", () => {
  const secret = "s3cret";

  test.each([
    `postgres://pets:${secret}@127.0.0.1/stock`,
    `mysql://pets:${secret}@127.0.0.1`,
    `mysql://pets:${secret}%zz@127.0.0.1/stock`,
    `pets:${secret}@127.0.0.1/stock`,
    "sqlite:",
  ])("exits 78 over the URL %s, naming the settings and not what they hold", async (url) => {
    const { code, stdout, stderr } = await command(bothIn(url));
    expect({ code, stdout }).toEqual({ code: 78, stdout: "" });
    expect(stderr).toMatch(
      /^The configuration has 2 faults:\n {2}GATEWAY_DATABASE_URL: must be .*\n {2}INVENTORY_DATABASE_URL: must be .*\n$/,
    );
    expect(stderr).not.toContain(secret);
  });

  test.each([
    ["a server that is not there", async () => `mysql://pets:${secret}@127.0.0.1:${await freePort()}/stock`],
    ["a server that refuses the account", async () => wrongPassword()],
    ["a file that cannot be made", async () => `sqlite:${import.meta.filename}/stock.sqlite`],
  ])("exits 1 over %s, without the password", async (_what, urlOf) => {
    const { code, stdout, stderr } = await command(bothIn(await urlOf()));
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).not.toBe("");
    expect(stderr).not.toContain(secret);
  });

  test("exits 1 when a step fails, having taken the steps before it", async () => {
    const url = await createMysqlDatabase();
    const other = await connectMysql(url);
    await other.query("CREATE TABLE inventory_migrations (something_else INT)");
    const { code, stdout, stderr } = await command(bothIn(url));
    expect({ code, stdout }).toEqual({ code: 1, stdout: "gateway: up 0001_keys\n" });
    expect(stderr).toContain("inventory_migrations");
    await other.end();
    await dropDatabase(url);
  });

  test("tells its settings with --help", async () => {
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
