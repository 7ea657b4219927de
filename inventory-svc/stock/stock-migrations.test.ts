import type { Knex } from "knex";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { stockMigrations } from "./stock-migrations.ts";
import { StockStore } from "./stock-store.ts";

const names = [
  "0001_stock",
  "0002_stock_adjustments",
  "0003_stock_requests",
  "0004_stock_floor",
  "0005_stock_ledger",
  "0006_stock_writes",
];
const tablesAfter = [
  [],
  ["stock", "stock_head"],
  ["stock", "stock_adjustments", "stock_head"],
  ["stock", "stock_head", "stock_requests"],
  ["stock", "stock_head", "stock_requests", "stock_times"],
  ["stock", "stock_head", "stock_ledger", "stock_times"],
  ["stock", "stock_head", "stock_ledger", "stock_times"],
];

async function tablesOf(db: Knex): Promise<string[]> {
  return await db("sqlite_master").where("type", "table").where("name", "like", "stock%").orderBy("name").pluck("name");
}

describe("the schema of the stock", () => {
  let db: Knex;
  beforeEach(() => {
    db = openDatabase("sqlite::memory:");
  });
  afterEach(() => db.destroy());

  test("goes up by steps whose names never change, and each step down leaves no table behind", async () => {
    expect(await migrate(db, "inventory", stockMigrations, "up")).toEqual(names);
    for (const left of [6, 5, 4, 3, 2, 1, 0]) {
      expect(await tablesOf(db)).toEqual(tablesAfter[left]);
      expect(await migrate(db, "inventory", stockMigrations, "down")).toEqual(names.slice(Math.max(left - 1, 0), left));
    }
  });

  test("each step can run again, up and down, as after a process that died before its end", async () => {
    for (const [i, step] of stockMigrations.entries()) {
      for (const _attempt of [1, 2]) await step.up(db);
      expect(await tablesOf(db)).toEqual(tablesAfter[i + 1]);
    }
    for (const [i, step] of [...stockMigrations.entries()].reverse()) {
      for (const _attempt of [1, 2]) await step.down(db);
      expect(await tablesOf(db)).toEqual(tablesAfter[i]);
    }
  });

  test("records of adjustments survive the step to requests and back, which says what it drops", async () => {
    await migrate(db, "inventory", stockMigrations.slice(0, 2), "up");
    const row = { revision: 1, request_id: "a", pet_id: 7, delta: -3, quantity: 9, status: "sold", made_at: 1 };
    await db("stock_adjustments").insert(row);
    const before = await db("stock_adjustments");
    await migrate(db, "inventory", stockMigrations, "up");
    const store = new StockStore(db);
    expect(
      await store.write([
        { kind: "adjust", petId: 7n, delta: -3, once: { id: "a", fingerprint: "-3" } },
        { kind: "create", petId: 8n, quantity: 1, status: "sold" },
        { kind: "update", petId: 8n, quantity: 2, once: { id: "acme key 8", fingerprint: "x" } },
        { kind: "adjust", petId: 8n, delta: 1, once: { id: "b", fingerprint: "0".repeat(43) } },
      ]),
    ).toMatchObject([
      { kind: "replayed", item: { quantity: 9, status: "sold" } },
      { kind: "done" },
      { kind: "done" },
      { kind: "done" },
    ]);
    const dropped: unknown[] = [];
    await migrate(db, "inventory", stockMigrations, "down");
    await migrate(db, "inventory", stockMigrations, "down", (lost) => dropped.push(lost));
    expect(dropped.splice(0)).toEqual([{ step: names[4], rows: new Map([["stock_ledger", 1]]), values: new Map() }]);
    await migrate(db, "inventory", stockMigrations, "down");
    await migrate(db, "inventory", stockMigrations, "down", (lost) => dropped.push(lost));
    expect(dropped).toEqual([{ step: names[2], rows: new Map([["stock_requests", 2]]), values: new Map() }]);
    expect(await db("stock_adjustments")).toEqual(before);
  });

  test("the step back from the floor begins a new epoch only where removals were forgotten", async () => {
    const epoch = async () => (await db("stock_head").first("epoch")).epoch;
    for (const floor of [0, 7]) {
      const steps = stockMigrations.slice(0, 4);
      await migrate(db, "inventory", steps, "up");
      await db("stock_head").update({ floor });
      const before = await epoch();
      await migrate(db, "inventory", steps, "down");
      expect((await epoch()) === before).toBe(floor === 0);
    }
  });
});
