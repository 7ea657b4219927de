import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Knex } from "knex";
import type { Connection } from "mysql2/promise";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { StockHistory } from "../../inventory-svc/stock/stock-history.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { discardAllConnections, isSqlite } from "../../runtime/database/knex-internals.ts";
import { type Migration, migrate, migrateDatabase } from "../../runtime/database/migrations.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import { createMysqlDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { bothIn, command, outputOf, schemas, stepsOf } from "../support/migrate-command.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { cleanup, startScript } from "../support/processes.ts";
import { type Stack, suiteStack } from "../support/stack.ts";

async function tablesOf(db: Knex): Promise<Map<string, string>> {
  const rows: { name: string }[] = isSqlite(db)
    ? await db("sqlite_master").where("type", "table").select("name")
    : await db("information_schema.tables").whereRaw("table_schema = DATABASE()").select("table_name as name");
  const names = rows.map(({ name }) => name).filter((name) => !/_migrations(_lock)?$|^sqlite_/.test(name));
  const definitions = names.sort().map(async (name): Promise<[string, string]> => {
    if (!isSqlite(db)) return [name, (await db.raw("SHOW CREATE TABLE ??", [name]))[0][0]["Create Table"]];
    const parts = await db("sqlite_master").where("tbl_name", name).orderBy("name").select("sql");
    return [name, parts.map(({ sql }) => sql).join("\n")];
  });
  return new Map(await Promise.all(definitions));
}
const namesOf = async (db: Knex) => [...(await tablesOf(db)).keys()];

async function revertAll(db: Knex, schema: string, migrations: readonly Migration[]): Promise<string[]> {
  const taken: string[] = [];
  for (const _ of migrations) taken.push(...(await migrate(db, schema, migrations, "down")));
  return taken;
}

/** Migrates over a connection that breaks after so many statements of the steps. @returns whether that failed */
async function failsAfter(
  statements: number,
  db: Knex,
  schema: string,
  migrations: readonly Migration[],
  direction: "up" | "down",
): Promise<boolean> {
  let left = statements;
  const failing = migrations.map((migration) => ({
    ...migration,
    [direction]: async (trx: Knex) => {
      trx.on("query-response", () => {
        if (left-- === 0) throw new Error("the connection broke");
      });
      await migration[direction](trx);
    },
  }));
  return await migrate(db, schema, failing, direction).then(
    () => false,
    () => true,
  );
}

function opener(stack: Stack, url: () => string) {
  return (silenceTimeoutMs = databaseDefaults.silenceTimeoutMs) => {
    const db = openDatabase(url(), { ...databaseDefaults, poolMax: 1, silenceTimeoutMs });
    stack.defer(() => db.destroy());
    return db;
  };
}

describeEachDatabase("migrations", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  const open = opener(stack, url);

  afterEach(async () => {
    const db = open();
    for (const [schema, migrations] of schemas) {
      await revertAll(db, schema, migrations);
      await db.schema.dropTableIfExists(`${schema}_migrations`);
      await db.schema.dropTableIfExists(`${schema}_migrations_lock`);
    }
    expect(await namesOf(db)).toEqual([]);
  });

  test.each(schemas)("the schema of %s goes up, down to nothing, and up again", async (schema, migrations) => {
    const db = open();
    const steps = stepsOf(migrations);
    const rounds = [];
    for (let round = 0; round < 2; round++) {
      expect(await migrate(db, schema, migrations, "up")).toEqual(steps);
      expect(await migrate(db, schema, migrations, "up")).toEqual([]);
      rounds.push(await tablesOf(db));
      expect(await revertAll(db, schema, migrations)).toEqual(steps.toReversed());
      expect(await migrate(db, schema, migrations, "down")).toEqual([]);
      expect(await namesOf(db)).toEqual([]);
    }
    expect(rounds[0]!.size).toBeGreaterThan(1);
    expect(rounds[1]).toEqual(rounds[0]);
  });

  test("one schema goes down and the other one keeps its data, in one database", async () => {
    const up = await command(bothIn(url()));
    expect(up).toEqual({ code: 0, stdout: outputOf(["gateway", "inventory"]), stderr: "" });
    const db = open();
    const both = await namesOf(db);
    await db("stock").insert({ pet_id: 7, quantity: 1, status: "sold", revision: 1, removed: 0 });
    for (const step of stepsOf(gatewayMigrations).toReversed()) {
      const down = await command(bothIn(url()), "--down", "--only", "gateway");
      expect(down).toEqual({ code: 0, stdout: `gateway: down ${step}\n`, stderr: "" });
    }
    expect(await namesOf(db)).toEqual(["stock", "stock_head", "stock_ledger", "stock_times"]);
    expect(await db("stock")).toHaveLength(1);
    expect(await command(bothIn(url()))).toMatchObject({
      stdout: `${outputOf(["gateway"])}inventory: nothing to do\n`,
    });
    expect(await namesOf(db)).toEqual(both);
  });

  test("a step back that drops rows says how many, and takes --drop-data of that step alone", async () => {
    const db = open();
    await command(bothIn(url()));
    await db("stock").insert(
      [7, 8].map((id) => ({ pet_id: id, quantity: 1, status: "sold", revision: id, removed: 0 })),
    );
    await db("accounts").insert({ id: "acc_1", name: "a", plan: "free", created_at: 0 });
    await db("account_minutes").insert({ account_id: "acc_1", minute_start: 0, requests: 1 });
    const down = (tier: string, ...more: string[]) => command(bothIn(url()), "--down", "--only", tier, ...more);

    await db("stock_times").insert({ revision: 1, noted_at: 0 });
    const stepsBack = stepsOf(stockMigrations).slice(1).toReversed();
    for (const step of stepsBack) {
      if (step === "0004_stock_floor") {
        expect(await down("inventory")).toMatchObject({
          code: 1,
          stderr: expect.stringMatching(/ 1 row of stock_times\n/),
        });
      }
      const taken = await down("inventory", ...(step === "0004_stock_floor" ? ["--drop-data", step] : []));
      expect(taken).toMatchObject({ code: 0, stdout: `inventory: down ${step}\n` });
    }
    const lost = "inventory: taking 0001_stock back drops 2 rows of stock\n";
    const advice = "Nothing was changed. Stop every inventory-svc, make a backup, then add --drop-data 0001_stock.\n";
    expect(await down("inventory")).toEqual({ code: 1, stdout: "", stderr: lost + advice });
    expect(await db("stock")).toHaveLength(2);
    const other = await down("inventory", "--drop-data", "0002_stock_adjustments");
    const refusal = "Nothing was changed. The last step of inventory is 0001_stock, not 0002_stock_adjustments.\n";
    expect(other).toEqual({ code: 1, stdout: "", stderr: refusal });
    expect(await db("stock")).toHaveLength(2);
    expect(await down("inventory", "--drop-data", "0001_stock")).toEqual({
      code: 0,
      stdout: "inventory: down 0001_stock\n",
      stderr: lost,
    });

    for (const step of ["0006_key_peppers", "0005_key_lines", "0004_refused_requests", "0003_deprecated_operations"])
      expect(await down("gateway")).toMatchObject({ code: 0, stdout: `gateway: down ${step}\n` });
    expect(await down("gateway")).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/ 1 row of account_minutes\n/),
    });
    expect(await down("gateway", "--drop-data", "0002_account_minutes")).toMatchObject({ code: 0 });
    expect(await down("gateway")).toMatchObject({ code: 1, stderr: expect.stringMatching(/ 1 row of accounts\n/) });
    expect(await db("accounts")).toHaveLength(1);
  });

  test("a step back that drops stored values of a column asks as for rows, and is finished without", async () => {
    const db = open();
    await command(bothIn(url()));
    await db("accounts").insert({ id: "acc_1", name: "a", plan: "free", created_at: 0 });
    const key = { account_id: "acc_1", env: "live", scopes: "", created_at: 0, pepper: "f" };
    const keys = [1, 2].map((id) => ({ ...key, id: `key_${id}`, key_hash: Buffer.alloc(32, id) }));
    await db("api_keys").insert(keys);
    await db("api_keys").where({ id: "key_2" }).update({ line: "key_1" });
    const minutes = [0, 5].map((refused, minute_start) => ({
      account_id: "acc_1",
      minute_start,
      requests: 9,
      refused,
    }));
    await db("account_minutes").insert(minutes);
    const use = { account_id: "acc_1", day: "2026-01-01", requests: 1 };
    await db("deprecated_use").insert(["getPet", "listOrders"].map((operation) => ({ ...use, operation })));
    const down = (...more: string[]) => command(bothIn(url()), "--down", "--only", "gateway", ...more);

    const lost = {
      "0006_key_peppers": "2 values of api_keys.pepper",
      "0005_key_lines": "1 value of api_keys.line",
      "0004_refused_requests": "1 value of account_minutes.refused",
      "0003_deprecated_operations": "1 value of deprecated_use.operation",
    };
    for (const [step, what] of Object.entries(lost)) {
      const drops = `gateway: taking ${step} back drops ${what}\n`;
      const advice = `Nothing was changed. Stop every gateway, make a backup, then add --drop-data ${step}.\n`;
      expect(await down()).toEqual({ code: 1, stdout: "", stderr: drops + advice });
      if (step === "0005_key_lines") {
        // The command died after it had dropped the column.
        await db.raw("alter table api_keys drop column line");
        expect(await down()).toEqual({ code: 0, stdout: `gateway: down ${step}\n`, stderr: "" });
        continue;
      }
      const taken = { code: 0, stdout: `gateway: down ${step}\n`, stderr: drops };
      expect(await down("--drop-data", step)).toEqual(taken);
    }
    expect(await db("api_keys").orderBy("id").pluck("id")).toEqual(["key_1", "key_2"]);
  });

  test("adjustments keep their records when their table becomes that of all requests, and back", async () => {
    const db = open();
    await migrate(db, "inventory", stockMigrations.slice(0, 2), "up");
    const adjustment = (revision: bigint, request_id: string, delta: number) => {
      return { revision, request_id, pet_id: 7n, delta, quantity: 9, status: "sold", made_at: BigInt(Date.now()) };
    };
    const before = [adjustment(1n, "b", 2_147_483_647), adjustment(2n, "A", -2_147_483_647), adjustment(3n, "a", -1)];
    await db("stock_adjustments").insert(before);
    const tables = await tablesOf(db);
    const read = () => db("stock_adjustments").orderBy("revision");
    const rows = await read();
    const store = new StockStore(db);

    const steps = ["0003_stock_requests", "0004_stock_floor", "0005_stock_ledger", "0006_stock_writes"];
    expect(await migrate(db, "inventory", stockMigrations, "up")).toEqual(steps);
    expect(await namesOf(db)).toEqual(["stock", "stock_head", "stock_ledger", "stock_times"]);
    expect(await db("stock_ledger").orderBy("id", "desc").pluck("once_id")).toEqual(["b", "A", "a"]);
    const adjust = { kind: "adjust", petId: 7n } as const;
    expect(
      await store.write([
        { ...adjust, delta: 2_147_483_647, once: { id: "b", fingerprint: "2147483647" } },
        { ...adjust, delta: -2_147_483_647, once: { id: "A", fingerprint: "-2147483647" } },
        { ...adjust, delta: 1, once: { id: "a", fingerprint: "1" } },
      ]),
    ).toMatchObject([
      { kind: "replayed", item: { petId: 7n, quantity: 9, status: "sold", revision: 1n } },
      { kind: "replayed", item: { revision: 2n } },
      { kind: "id_reused" },
    ]);

    const once = { id: "acme key 7", fingerprint: "x" };
    await store.write([{ kind: "create", petId: 7n, quantity: 1, status: "sold" }]);
    await store.write([{ kind: "update", petId: 7n, quantity: 2, once }]);
    const dropped: unknown[] = [];
    const down = () => migrate(db, "inventory", stockMigrations, "down", (lost) => dropped.push(lost));
    expect([...(await down()), ...(await down()), ...(await down()), ...(await down())]).toEqual(steps.toReversed());
    const lostChanges = { step: "0005_stock_ledger", rows: new Map([["stock_ledger", 1]]), values: new Map() };
    const noChanges = { step: "0004_stock_floor", rows: new Map(), values: new Map() };
    const lostRequests = { step: "0003_stock_requests", rows: new Map([["stock_requests", 1]]), values: new Map() };
    const noWrites = { step: "0006_stock_writes", rows: new Map(), values: new Map() };
    expect(dropped).toEqual([noWrites, lostChanges, noChanges, lostRequests]);
    expect(await tablesOf(db)).toEqual(tables);
    expect(await read()).toEqual(rows);
  });

  test("records answer repeats after the step to the ledger and back, and are no history", async () => {
    const db = open();
    await migrate(db, "inventory", stockMigrations.slice(0, 4), "up");
    const made_at = BigInt(Date.now());
    const record = { pet_id: 7n, quantity: 9, status: "sold", made_at };
    await db("stock").insert({ pet_id: 7n, quantity: 1, status: "sold", revision: 5n, removed: 0 });
    await db("stock_head").update({ revision: 5n });
    await db("stock_requests").insert([
      { ...record, request_id: "a", fingerprint: "-3", revision: 4n },
      { ...record, request_id: "acme key 7", fingerprint: "x", revision: 4n, made_at: made_at + 1n },
    ]);
    const rows = () => db("stock_requests").orderBy("id").select("request_id", "fingerprint", "revision", "made_at");
    const before = await rows();

    expect(await migrate(db, "inventory", stockMigrations, "up")).toEqual(["0005_stock_ledger", "0006_stock_writes"]);
    const store = new StockStore(db);
    const update = { kind: "update", petId: 7n, quantity: 9, once: { id: "acme key 7", fingerprint: "x" } } as const;
    const replayed = { kind: "replayed", item: { petId: 7n, quantity: 9, status: "sold", revision: 4n } };
    const adjust = { kind: "adjust", petId: 7n, delta: -3, once: { id: "a", fingerprint: "-3" } } as const;
    expect(await store.write([update, adjust])).toEqual([replayed, replayed]);
    expect(await new StockHistory(db).before(undefined, 7n, 10)).toEqual([]);
    // A key that finds the entry as it wants it takes the next number below those.
    const again = { ...update, quantity: 1, once: { id: "acme other 7", fingerprint: "y" } };
    expect(await store.write([again, again])).toMatchObject([{ kind: "done" }, { kind: "replayed" }]);
    expect(await db("stock_ledger").orderBy("id", "desc").pluck("id")).toEqual([-1n, -2n, -3n]);

    for (const _step of ["0006_stock_writes", "0005_stock_ledger"])
      await migrate(db, "inventory", stockMigrations, "down");
    expect((await rows()).slice(0, 2)).toEqual(before);
  });

  test("a migration that died after it had renamed the adjustments is finished by the next one", async () => {
    const db = open();
    await migrate(db, "inventory", stockMigrations.slice(0, 2), "up");
    const row = { revision: 1, request_id: "a", pet_id: 7, delta: 1, quantity: 9, status: "sold", made_at: 1 };
    await db("stock_adjustments").insert(row);
    await db.schema.renameTable("stock_adjustments", "stock_adjustments_old");
    await migrate(db, "inventory", stockMigrations, "up");
    expect(await db("stock_ledger").pluck("fingerprint")).toEqual(["1"]);
    expect(await namesOf(db)).toEqual(["stock", "stock_head", "stock_ledger", "stock_times"]);
    for (const _step of ["0006_stock_writes", "0005_stock_ledger", "0004_stock_floor"])
      await migrate(db, "inventory", stockMigrations, "down");
    await db.schema.renameTable("stock_requests", "stock_requests_old");
    await migrate(db, "inventory", stockMigrations, "down");
    expect((await db("stock_adjustments").pluck("delta")).map(Number)).toEqual([1]);
    expect(await namesOf(db)).toEqual(["stock", "stock_adjustments", "stock_head"]);
  });

  test("five processes that migrate at once all succeed, and each step is taken once", async () => {
    const results = await Promise.all(Array.from({ length: 5 }, () => command(bothIn(url()))));
    expect(results.map(({ code, stderr }) => ({ code, stderr }))).toEqual(Array(5).fill({ code: 0, stderr: "" }));
    for (const [schema] of schemas) {
      expect(results.filter(({ stdout }) => stdout.includes(outputOf([schema])))).toHaveLength(1);
    }
    const db = open();
    expect(await db("stock_head")).toHaveLength(1);
    for (const [schema, migrations] of schemas)
      expect(await db(`${schema}_migrations`)).toHaveLength(migrations.length);
  });

  test.each(["SIGKILL", "SIGSTOP"] as const)(
    "a process that waits to migrate goes on when the one that migrates gets %s",
    async (signal) => {
      if (signal === "SIGSTOP" && url().startsWith("sqlite:")) return; // the lock of a file ends with its process
      const dying = await startScript({
        name: "dying",
        script: "test/support/stuck-migration.ts",
        env: { INVENTORY_DATABASE_URL: url() },
      });
      await dying.waitForLine((line) => line === "stuck" || undefined, 20_000);
      const waiting = await startScript({ name: "waiting", script: "deploy/migrate.ts", env: bothIn(url()) });
      expect(await Promise.race([waiting.exited, delay(1_000, "still waiting")])).toBe("still waiting");
      await dying.kill(signal);
      expect(await waiting.exited).toBe(0);
      await dying.kill("SIGKILL");
      expect(`${waiting.output()}\n`).toBe(outputOf(["gateway", "inventory"]));
      expect(await open()("stock_head")).toHaveLength(1);
    },
  );

  // MySQL commits every statement of a schema by itself.
  test.each(schemas)(
    "the steps of %s are finished by the next run, whichever statement failed",
    async (schema, migrations) => {
      const db = open();
      let failures = 0;
      for (const index of migrations.keys()) {
        const steps = migrations.slice(0, index + 1);
        await migrate(db, schema, steps, "up");
        const whole = await tablesOf(db);
        let failed = true;
        for (let statements = 0; failed; statements++) {
          expect(await migrate(db, schema, steps, "down")).toHaveLength(1);
          failed = await failsAfter(statements, db, schema, steps, "up");
          if (failed) failures++;
          await migrate(db, schema, steps, "up");
          expect(await tablesOf(db)).toEqual(whole);
          if (schema === "inventory") expect(await db("stock_head")).toHaveLength(1);
        }
      }
      expect(failures).toBeGreaterThan(6);
    },
    300_000,
  );

  test.each(schemas)(
    "a step of %s taken back by half is refused by a migration, and finished by --down",
    async (schema, migrations) => {
      const db = open();
      let halves = 0;
      for (const index of migrations.keys()) {
        await migrate(db, schema, migrations.slice(0, index), "up");
        const before = await tablesOf(db);
        const steps = migrations.slice(0, index + 1);
        let failed = true;
        for (let statements = 0; failed; statements++) {
          await migrate(db, schema, steps, "up");
          const whole = await tablesOf(db);
          failed = await failsAfter(statements, db, schema, steps, "down");
          if (failed) {
            const fault = await migrate(db, schema, steps, "up").catch((error: Error) => error.message);
            if (typeof fault === "string") {
              expect(fault).toContain(`${steps[index]!.name} was taken back by half: npm run migrate -- --down --only`);
              halves++;
            } else expect(await tablesOf(db)).toEqual(whole);
            expect(await migrate(db, schema, steps, "down")).toEqual([steps[index]!.name]);
          }
          expect(await tablesOf(db)).toEqual(before);
        }
      }
      if (!isSqlite(db)) expect(halves).toBeGreaterThan(3); // SQLite takes all of a step back or nothing
    },
    300_000,
  );

  test("the use of deprecated operations keeps its counts up and down, whatever statement failed", async () => {
    const db = open();
    const step = ["0003_deprecated_operations"];
    const migrations = gatewayMigrations.slice(0, 3); // up to that step
    await migrate(db, "gateway", migrations, "up");
    await db("accounts").insert({ id: "acc_1", name: "a", plan: "free", created_at: 0 });
    const countsOf = async () =>
      (await db("deprecated_use").orderBy(["day", "operation"])).map((row) => [
        row.day,
        row.operation,
        Number(row.requests),
      ]);
    const use = { account_id: "acc_1", day: "2026-01-31" };

    let failures = 0;
    for (let failed = true; failed; failures++) {
      await db("deprecated_use").insert([
        { ...use, operation: "getPet", requests: 3 },
        { ...use, operation: "getOrders", requests: 4 },
        { ...use, operation: "getPet", day: "2026-02-01", requests: 5 },
      ]);
      failed = await failsAfter(failures, db, "gateway", migrations, "down");
      if (failed) expect(await migrate(db, "gateway", migrations, "down")).toEqual(step);
      expect((await db("deprecated_use").orderBy("day")).map(({ requests }) => Number(requests))).toEqual([7, 5]);

      failed = (await failsAfter(failures, db, "gateway", migrations, "up")) || failed;
      await migrate(db, "gateway", migrations, "up");
      expect(await countsOf()).toEqual([
        ["2026-01-31", "getPet", 7],
        ["2026-02-01", "getPet", 5],
      ]);
      await db("deprecated_use").delete();
    }
    expect(failures).toBeGreaterThan(6);
  }, 300_000);
});

describe("the lock of migrations (MySQL/MariaDB)", () => {
  const stack = suiteStack();
  let url: string;
  const open = opener(stack, () => url);
  beforeAll(async () => {
    url = await createMysqlDatabase();
    stack.defer(() => dropDatabase(url));
  });

  const lockName = () =>
    `petstore-migrate:${createHash("sha256").update(new URL(url).pathname.slice(1)).digest("hex").slice(0, 40)}`;
  async function ask(connection: Connection, question: string): Promise<number> {
    const [rows] = await connection.query(question, [lockName()]);
    return (rows as { answer: number }[])[0]!.answer;
  }

  test("the lock of migrations is waited for longer than a connection may be silent", async () => {
    const other = await connectMysql(url);
    await other.query("SELECT GET_LOCK(?, 0)", [lockName()]);
    const waiting = migrateDatabase(url, "inventory", stockMigrations);
    const silence = delay(databaseDefaults.silenceTimeoutMs + 1_000, "still waiting");
    expect(await Promise.race([waiting, silence])).toBe("still waiting");
    await other.end();
    expect(await waiting).toEqual(stepsOf(stockMigrations));
  });

  test("no step of a migration begins once the connection with the lock of migrations is lost", async () => {
    const db = open();
    await migrate(db, "inventory", stockMigrations, "up");
    await db("stock").insert({ pet_id: 7, quantity: 1, status: "sold", revision: 1, removed: 0 });
    for (const _ of [5, 4, 3, 2]) await migrate(db, "inventory", stockMigrations, "down");
    const loseConnection = () => discardAllConnections(db, "lost");
    await expect(migrate(db, "inventory", stockMigrations, "down", loseConnection)).rejects.toThrow(
      /lock of migrations/,
    );
    expect(await db("stock")).toHaveLength(1);
  });

  test("the lock of migrations is held until the migration ends", async () => {
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
