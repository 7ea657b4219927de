import { setTimeout as delay } from "node:timers/promises";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyStore } from "../../gateway/accounts/keys/key-store.ts";
import { StockHistory } from "../../inventory-svc/stock/stock-history.ts";
import type { Engine } from "../../runtime/database/engine.ts";
import { migrateDatabase } from "../../runtime/database/migrations.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import { checkAdjustments } from "../faults/adjustments.ts";
import { startTiers, type Tiers } from "../faults/cluster.ts";
import { connectMysql, createDatabaseOn, withDatabase } from "../support/mysql-client.ts";
import { migrateStock, type OpenStock, openMigratedStock } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { runContractSuites } from "./contract-suites.ts";
import { startVitess, transactionTimeoutMs, type Vitess } from "./vitess.ts";
import { missing } from "./vitess-programs.ts";
import { checkThrough, inTurns, type WriterFault } from "./writer-faults.ts";

/** `npm run test:cluster` runs the long version. */
const isLong = process.env.FAULTS === "long";
const pets = 8;
const shards = ["-80", "80-"];

if (missing) console.warn(`Vitess cannot run ${missing}: skipped here.`);
(missing ? describe.skip : describe)(`Vitess${missing ? `, which cannot run ${missing}` : ""}`, () => {
  const stack = suiteStack();
  let vitess: Vitess;

  beforeAll(async () => {
    vitess = await startVitess(stack, { sharded: shards });
  }, 3_600_000);

  test("the contract suite passes on a keyspace of one shard", async () => {
    await runContractSuites(vitess.serverUrl);
  }, 900_000);

  test("it is recognized, and NOT SAFE names a primary that waits for no replica", async () => {
    const seen: Engine[] = [];
    const url = await createDatabaseOn(vitess.serverUrl);
    const db = openDatabase(url, { ...databaseDefaults, onConnected: (engine) => seen.push(engine) });
    stack.defer(() => db.destroy());
    await db.raw("SELECT 1");
    expect(seen).toEqual([
      expect.objectContaining({
        name: expect.stringMatching(/^MySQL [\d.]+, Vitess$/),
        risks: [expect.stringContaining("waits for no replica")],
      }),
    ]);
  });

  test("equal reads that wait at the same time get an answer each", async () => {
    const url = await createDatabaseOn(vitess.serverUrl);
    const patient = { ...databaseDefaults, poolMax: 1, silenceTimeoutMs: 60_000 };
    await migrateDatabase(url, "gateway", gatewayMigrations);
    const stocks: OpenStock[] = [];
    for (let i = 0; i < 8; i++) stocks.push(await openMigratedStock(stack, url, patient));
    const sharedBy = async (read: (stock: OpenStock) => PromiseLike<unknown>) => {
      const before = await vitess.sharedAnswers();
      await vitess.mysql.kill("SIGSTOP");
      const reading = stocks.map(read);
      await delay(500); // all of them wait
      await vitess.mysql.kill("SIGCONT");
      await Promise.all(reading);
      return (await vitess.sharedAnswers()) - before;
    };
    await Promise.all(stocks.map(({ store }) => store.position())); // each has a connection
    expect(await sharedBy(({ db }) => db("stock_head").select("revision"))).toBeGreaterThan(0);
    expect(await sharedBy(({ store }) => store.position())).toBe(0);
    expect(await sharedBy(({ store }) => store.get(1n))).toBe(0);
    expect(await sharedBy(({ db }) => new StockHistory(db).has(1n))).toBe(0);
    expect(await sharedBy(({ db }) => createKeyStore(db).findByHash(Buffer.alloc(32)))).toBe(0);
  }, 120_000);

  test("a packet of statements ends with the first one that fails", async () => {
    const url = await createDatabaseOn(vitess.serverUrl);
    const db = openDatabase(url, { ...databaseDefaults, poolMax: 1 });
    stack.defer(() => db.destroy());
    await db.raw("CREATE TABLE numbers (n INT PRIMARY KEY)");
    const insert = (n: number) => `INSERT INTO numbers VALUES (${n})`;
    const packet = ["BEGIN", insert(1), insert(1), insert(2), "COMMIT"].join(";");
    await expect(db.raw(packet)).rejects.toMatchObject({ code: "ER_DUP_ENTRY" });
    await db.raw("ROLLBACK");
    expect(await db("numbers").select()).toEqual([]);
  });

  test("reads go on where another server has become the primary", async () => {
    const url = await createDatabaseOn(vitess.serverUrl);
    const { store } = await openMigratedStock(stack, url);
    await store.position();
    const mysql = await connectMysql(vitess.behind(url));
    stack.defer(() => mysql.end());
    await mysql.query("SET GLOBAL server_id = 2"); // by which the services recognize a server
    expect(await store.position()).toMatchObject({ revision: 0n });
  });

  test("migrations that begin at the same time take turns", async () => {
    const url = await createDatabaseOn(vitess.serverUrl);
    await Promise.all([migrateStock(url), migrateStock(url), migrateStock(url)]);
    const { store } = await openMigratedStock(stack, url);
    expect(await store.position()).toMatchObject({ revision: 0n });
  }, 120_000);

  test("a frozen process keeps the lock of the stock no longer than a transaction may take", async () => {
    const url = await createDatabaseOn(vitess.serverUrl);
    const { store } = await openMigratedStock(stack, url);
    const frozen = await connectMysql(url);
    stack.defer(() => frozen.destroy());
    await frozen.query("BEGIN");
    await frozen.query("SELECT revision FROM stock_head FOR UPDATE");
    const startMs = performance.now();
    const create = { kind: "create", petId: 1n, quantity: 0, status: "available" } as const;
    const isWritten = () =>
      store.write([create]).then(
        () => true,
        () => false,
      );
    await until(isWritten, { withinMs: 60_000 });
    const tookMs = performance.now() - startMs;
    expect(tookMs).toBeGreaterThan(transactionTimeoutMs / 2);
    expect(tookMs).toBeLessThan(3 * transactionTimeoutMs);
    await expect(frozen.query("UPDATE stock_head SET revision = 0")).rejects.toThrow();
  }, 120_000);

  test("a keyspace of several shards is refused: by the migrations, and for each transaction", async () => {
    const url = withDatabase(vitess.serverUrl, "sharded");
    await expect(migrateStock(url)).rejects.toThrow("Keyspace does not have exactly one shard");
    const db = openDatabase(url, { ...databaseDefaults, poolMax: 1 });
    stack.defer(() => db.destroy());
    const inBoth = (statement: string) => shards.flatMap((shard) => [`USE \`sharded:${shard}\``, statement]);
    await db.raw(inBoth("CREATE TABLE numbers (n INT PRIMARY KEY)").join(";"));
    const packet = ["BEGIN", ...inBoth("INSERT INTO numbers VALUES (1)"), "COMMIT"].join(";");
    await expect(db.raw(packet)).rejects.toThrow("multi-db transaction attempted");
  }, 120_000);

  describe("both tiers", () => {
    let tiers: Tiers;
    let faults: Record<"gateKilled" | "serverKilled" | "serverFrozen", WriterFault>;

    beforeAll(async () => {
      const { gate, mysql, serverUrl } = vitess;
      const started = await startTiers(stack, [serverUrl, serverUrl], { gateways: 2, pets });
      // The checks ask the server itself for what was committed: VTGate takes no triggers.
      const databaseUrls = {
        ...started.system.databaseUrls,
        inventory: vitess.behind(started.system.databaseUrls.inventory),
      };
      tiers = { ...started, system: { ...started.system, databaseUrls } };
      const fault = (name: string, strike: () => Promise<void>): WriterFault => {
        const run = async () => {
          await strike();
          await delay(1_000); // both tiers work for a while
        };
        return { name, run };
      };
      faults = {
        gateKilled: fault("VTGate and its tablets killed", async () => {
          await gate.kill("SIGKILL");
          await gate.start();
        }),
        serverKilled: fault("MySQL killed", async () => {
          await mysql.kill("SIGKILL");
          await mysql.start();
        }),
        serverFrozen: fault("MySQL frozen for 4 s", async () => {
          await mysql.kill("SIGSTOP");
          await delay(4_000);
          await mysql.kill("SIGCONT");
        }),
      };
    }, 120_000);

    test("lose no update and show nothing older while VTGate and MySQL are killed and frozen", async () => {
      const { gateKilled, serverKilled, serverFrozen } = faults;
      const run = isLong
        ? inTurns([20, gateKilled], [20, serverKilled], [10, serverFrozen])
        : [gateKilled, serverKilled, serverFrozen, gateKilled, serverKilled];
      const verdict = await checkThrough(run, tiers, pets);
      expect(verdict.violations).toEqual([]);
      expect(verdict.refused).toBeGreaterThan(0); // the faults had an effect
    }, 1_800_000);

    test("apply every adjustment once while VTGate and MySQL are killed", async () => {
      const { gateKilled, serverKilled } = faults;
      const run = isLong ? inTurns([8, gateKilled], [8, serverKilled]) : [gateKilled, serverKilled];
      const verdict = await checkAdjustments(tiers, {
        petIds: [101n, 102n, 103n],
        callers: 12,
        adjustments: 500,
        disturbances: run.map((fault) => fault.run),
      });
      console.info(verdict);
      expect(verdict).toMatchObject({ astray: 0, falselyDenied: 0, differences: [0n, 0n, 0n] });
      expect(verdict.failed).toBeGreaterThan(0); // the kills had an effect
    }, 1_800_000);
  });
});
