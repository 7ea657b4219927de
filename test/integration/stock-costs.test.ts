import type { Change } from "../../inventory-svc/stock/change.ts";
import { StockHistory } from "../../inventory-svc/stock/stock-history.ts";
import { databaseDefaults } from "../../runtime/database/open.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { type OpenStock, openMigratedStock, pagesOf } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import {
  allPages,
  create,
  newMysqlStock,
  noteStatements,
  petIds,
  range,
  remove,
  update,
} from "../support/stock-changes.ts";

describe("round trips (MySQL/MariaDB)", () => {
  const stack = suiteStack();
  const once = (petId: bigint) => ({ id: `acme k ${petId}`, fingerprint: "x" });

  test("one change, a batch, changes that happen once and their repeat take two round trips each", async () => {
    const { db, store } = await newMysqlStock(stack);
    await store.write(range(1, 3).map((petId) => create(petId, 0)));
    const keyed = range(1, 2).map((petId): Change => ({ kind: "update", petId, quantity: 90, once: once(petId) }));
    const statements = noteStatements(db);
    for (const batch of [[update(1n, 7)], range(1, 3).map((petId) => update(petId, 8)), keyed, keyed]) {
      statements.length = 0;
      await store.write(batch);
      expect(statements).toHaveLength(2);
    }
  });
});

describeEachDatabase("a stock of 100,000 entries", (url) => {
  const stack = suiteStack();
  const count = 100_000;
  let stock: OpenStock;
  let epoch: string;

  beforeAll(async () => {
    // One connection, so that what it counts is what the store's statements did.
    stock = await openMigratedStock(stack, url(), { ...databaseDefaults, poolMax: 1 });
    for (let from = 1; from <= count; from += 5_000) {
      await stock.store.write(range(from, from + 4_999).map((petId) => create(petId)));
    }
    ({ epoch } = await stock.store.position());
  });

  /** Rows that the server read for a piece of work, and the plan of its last statement. */
  async function costOf(work: () => Promise<unknown>): Promise<{ read: number; plan: string }> {
    let last: { sql: string; bindings: unknown[] } | undefined;
    stock.db.on("query", (query) => {
      last = query;
    });
    const isSqlite = url().startsWith("sqlite:");
    const counters = async () => {
      if (isSqlite) return 0;
      const [rows] = await stock.db.raw("SHOW SESSION STATUS LIKE 'Handler_read%'");
      return (rows as { Value: string }[]).reduce((sum, { Value }) => sum + Number(Value), 0);
    };
    const before = await counters();
    await work();
    const { sql, bindings } = last!;
    const read = (await counters()) - before;
    const explained = await stock.db.raw(
      `${isSqlite ? "EXPLAIN QUERY PLAN" : "EXPLAIN FORMAT=JSON"} ${sql}`,
      bindings as never,
    );
    return {
      read,
      plan: JSON.stringify(isSqlite ? explained : explained[0], (_, v) => (typeof v === "bigint" ? Number(v) : v)),
    };
  }

  test.each([
    ["at the latest revision", 0, 1_000],
    ["10 changes before it", 10, 1_000],
    ["half the stock before it, for a page of 1,000", 50_000, 1_000],
    ["all of the stock before it, for a page of 10", 100_000, 10],
  ])("a read of changes costs the changes, not the whole stock: %s", async (_where, behind, limit) => {
    const position = { epoch, revision: BigInt(count - behind) };
    const rows = Math.min(behind, limit);
    const { read, plan } = await costOf(async () => {
      expect(await stock.store.changesAfter(position, limit)).toMatchObject({ rows: { length: rows } });
    });
    // A row through the index, the temporary table of the page and its order: the same few times, at any distance.
    expect(read).toBeLessThanOrEqual(30 + 6 * rows);
    // At the head its row alone says that there is nothing more.
    expect(plan).toMatch(rows === 0 ? /stock_head/ : /stock_revision_index/);
    expect(plan).not.toMatch(/SCAN stock\b/);
  });

  test("a page of the list costs the rows of a page, wherever it begins", async () => {
    const { read, plan } = await costOf(async () => {
      for await (const page of pagesOf(stock.store, 50)) if (page[0]!.petId > 200n) break;
    });
    expect(read).toBeLessThanOrEqual(5 * 55);
    expect(plan).toMatch(/PRIMARY|INTEGER PRIMARY KEY|USING INDEX/);
  });

  test("a page of the list or of changes costs its own rows, however many entries were removed", async () => {
    const removed = await stock.store.position();
    for (let from = 1_001; from <= 99_000; from += 5_000) {
      await stock.store.write(range(from, Math.min(from + 4_999, 99_000)).map(remove));
    }
    for (const after of [undefined, 1_000n, 50_000n]) {
      const page = await costOf(async () => {
        expect(await stock.store.rowsAfter(after, 50)).toHaveLength(50);
      });
      expect(page.read).toBeLessThanOrEqual(55);
      expect(page.plan).toMatch(/PRIMARY|USING INDEX sqlite_autoindex_stock/);
      expect(page.plan).not.toMatch(/filesort|TEMP B-TREE/);
    }
    const changes = await costOf(async () => {
      expect(await stock.store.changesAfter(removed, 50)).toMatchObject({ rows: { length: 50 }, more: true });
    });
    expect(changes.read).toBeLessThanOrEqual(30 + 6 * 50);
    expect(changes.plan).toMatch(/stock_revision_index/);
    const entries = await allPages(stock.store, 1_000);
    expect(petIds(entries)).toEqual([...range(1, 1_000), ...range(99_001, count)]);
  }, 60_000);

  test("a page of the history of an entry with 100,000 changes costs no more than its own rows", async () => {
    const changes = (petId: bigint, from: number) => range(from, from + 4_999).map((n) => update(petId, Number(n)));
    for (let from = 1; from <= count; from += 5_000) await stock.store.write(changes(500n, from));
    const history = new StockHistory(stock.db);
    const { revision } = await stock.store.position();
    for (const [petId, before, found] of [
      [500n, undefined, 21],
      [500n, revision - 50_000n, 21],
      [501n, undefined, 1],
    ] as const) {
      const page = await costOf(async () => {
        expect(await history.before(before, petId, 21)).toHaveLength(found);
      });
      expect(page.read).toBeLessThanOrEqual(25);
      expect(page.plan).toMatch(/stock_ledger_pet_index/);
      expect(page.plan).not.toMatch(/filesort|TEMP B-TREE|SCAN/);
    }
    const all = await costOf(async () => {
      expect(await history.before(revision - 50_000n, undefined, 100)).toHaveLength(100);
    });
    expect(all.read).toBeLessThanOrEqual(105);
    expect(all.plan).not.toMatch(/filesort|TEMP B-TREE|SCAN/);
  }, 120_000);

  test("a read of one entry costs one row", async () => {
    const { read } = await costOf(async () => {
      expect(await stock.store.get(BigInt(count))).toBeDefined();
    });
    expect(read).toBeLessThanOrEqual(2);
  });
});
