import { writeFile } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import type { Knex } from "knex";
import type { Change, Outcome } from "../../inventory-svc/stock/changes.ts";
import { maxPetId, maxQuantity, minPetId, type StockItem } from "../../inventory-svc/stock/item.ts";
import { type Position, type StockStore, StockUnavailableError } from "../../inventory-svc/stock/store.ts";
import { databaseDefaults } from "../../runtime/database.ts";
import { type Stack, suiteStack } from "../support/cleanup.ts";
import { createMysqlDatabase, createSqliteDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { freePort } from "../support/ports.ts";
import { cleanup, startScript } from "../support/processes.ts";
import { holdWriteLock, migrateStock, type OpenStock, openStock, sqliteFile, untilRunning } from "../support/stock.ts";

const create = (petId: bigint, quantity = 1): Change => ({ kind: "create", petId, quantity, status: "available" });
const update = (petId: bigint, quantity: number): Change => ({ kind: "update", petId, quantity });
const remove = (petId: bigint): Change => ({ kind: "remove", petId });
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => BigInt(from + i));
const kinds = (outcomes: readonly Outcome[]) => outcomes.map(({ kind }) => kind);
const petIds = (items: readonly StockItem[]) => items.map(({ petId }) => petId);

async function allPages(store: StockStore, pageSize: number): Promise<StockItem[]> {
  const items: StockItem[] = [];
  for await (const page of store.pages(pageSize)) items.push(...page);
  return items;
}

/** What follows a position, in pages of `limit`; fails on a reset. */
async function follow(store: StockStore, from: Position, limit: number) {
  const pages = [];
  for (let position = from; ; ) {
    const changes = await store.changesAfter(position, limit);
    if (changes.kind === "reset") throw new Error("the position was refused");
    pages.push(changes);
    if (!changes.more) return pages;
    position = changes.position;
  }
}

/** The codes of the statements that fail from now on. */
function failuresOf(db: Knex): string[] {
  const codes: string[] = [];
  db.on("query-error", ({ code }: { code: string }) => codes.push(code));
  return codes;
}

/** Starts processes that write at the same time. @returns what each of them did */
async function runWriters(url: string, tasks: string[][]): Promise<{ done: number; refused?: number }[]> {
  const writers = await Promise.all(
    tasks.map((args) =>
      startScript({
        name: "writer",
        script: "test/support/stock-writer.ts",
        args,
        env: { INVENTORY_DATABASE_URL: url },
      }),
    ),
  );
  await Promise.all(writers.map((writer) => writer.waitForLine((line) => line === "ready" || undefined, 20_000)));
  for (const writer of writers) await writer.kill("SIGUSR2");
  return await Promise.all(
    writers.map((writer) =>
      writer.waitForLine((line) => (line.startsWith("{") ? JSON.parse(line) : undefined), 50_000),
    ),
  );
}

describeEachDatabase("the stock's store", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let stock: OpenStock;
  let store: StockStore;
  let start: Position;

  beforeAll(async () => {
    await migrateStock(url());
    stock = openStock(url());
    stack.defer(() => stock.close());
    store = stock.store;
  });
  beforeEach(async () => {
    await stock.db("stock").delete();
    await stock.db("stock_head").update({ revision: 0 });
    start = await store.position();
  });

  test("a new stock is empty, at revision 0 of an epoch of its own", async () => {
    expect(start).toEqual({ epoch: expect.stringMatching(/^[0-9a-f-]{36}$/), revision: 0n });
    expect(await allPages(store, 10)).toEqual([]);
    expect(await store.changesAfter(start, 10)).toEqual({ kind: "changes", position: start, rows: [], more: false });
  });

  test.each([minPetId, minPetId + 1n, -(2n ** 53n) - 1n, -1n, 0n, 1n, 2n ** 53n + 1n, maxPetId - 1n, maxPetId])(
    "petId %s comes back exactly, by every way",
    async (petId) => {
      await store.write([create(petId, maxQuantity), create(0n)]);
      const item = { petId, quantity: maxQuantity, status: "available", revision: 1n };
      expect(await store.get(petId)).toMatchObject(item);
      expect(await allPages(store, 10)).toContainEqual(expect.objectContaining(item));
      expect((await follow(store, start, 10)).flatMap(({ rows }) => rows)).toContainEqual({ ...item, removed: false });
      expect(kinds(await store.write([create(petId), update(petId, 0), remove(petId)]))).toEqual([
        "already_exists",
        "done",
        "done",
      ]);
      expect(await store.get(petId)).toBeUndefined();
    },
  );

  test("revisions stay exact beyond 2^53, up to the last int64", async () => {
    await stock.db("stock_head").update({ revision: maxPetId - 2n });
    await store.write([create(1n), create(2n)]);
    expect(await store.position()).toEqual({ ...start, revision: maxPetId });
    expect(await store.get(1n)).toMatchObject({ revision: maxPetId - 1n });
    const from = { ...start, revision: maxPetId - 1n };
    expect(await store.changesAfter(from, 10)).toMatchObject({
      position: { revision: maxPetId },
      rows: [{ petId: 2n }],
    });
  });

  test.each([1, 2, 4, 8, 9])("pages of %i give every entry once, in the order of petId", async (pageSize) => {
    const ids = [minPetId, minPetId + 1n, -5n, -1n, 0n, 1n, maxPetId - 1n, maxPetId];
    await store.write([...ids.toReversed().map((petId) => create(petId)), create(3n), remove(3n)]);
    expect(petIds(await allPages(store, pageSize))).toEqual(ids);
  });

  test("pages that others write between give whatever stood all the time once, in order", async () => {
    const stays = [...range(-20, -11), ...range(11, 20)];
    const goes = range(-10, 10);
    await store.write([...stays, ...goes].map((petId) => create(petId)));
    const seen: StockItem[] = [];
    let turn = 0;
    for await (const page of store.pages(4)) {
      seen.push(...page);
      // Behind the reader, before it, and right where it is.
      const at = page.at(-1)!.petId;
      const gone = goes.filter((petId) => petId > at).slice(0, 1);
      const changes = [create(-1_000n - BigInt(turn)), create(1_000n + BigInt(turn)), update(11n, 100 + turn)];
      await store.write([...changes, ...gone.map(remove)]);
      if (++turn === 12) break; // entries ahead appear as fast as they are read
    }
    const ids = petIds(seen);
    expect(ids).toEqual([...new Set(ids)].sort((a, b) => (a < b ? -1 : 1)));
    expect(ids).toEqual(expect.arrayContaining(stays));
    expect(seen.find(({ petId }) => petId === 11n)!.quantity).toBeGreaterThan(100);
    expect(ids).not.toContain(-10n); // removed before its page was read
  });

  test("changes after a position are the last states since, in the order of revisions, removals included", async () => {
    await store.write([create(1n), create(2n), create(3n)]);
    const position = await store.position();
    await store.write([update(1n, 5), remove(2n), create(4n), update(1n, 6)]);
    expect(await store.changesAfter(position, 10)).toEqual({
      kind: "changes",
      position: { epoch: start.epoch, revision: 7n },
      rows: [
        { petId: 2n, quantity: 1, status: "available", revision: 5n, removed: true },
        { petId: 4n, quantity: 1, status: "available", revision: 6n, removed: false },
        { petId: 1n, quantity: 6, status: "available", revision: 7n, removed: false },
      ],
      more: false,
    });
  });

  test.each([
    [10, 3, [3, 3, 3, 1]],
    [9, 3, [3, 3, 3, 0]],
    [10, 100, [10]],
  ])("%i changes come in pages of %i, with `more` until the last", async (count, limit, sizes) => {
    await store.write(range(1, count).map((petId) => create(petId)));
    const pages = await follow(store, start, limit);
    expect(pages.map(({ rows }) => rows.length)).toEqual(sizes);
    expect(pages.map(({ more }) => more)).toEqual(sizes.map((_, i) => i < sizes.length - 1));
    expect(petIds(pages.flatMap(({ rows }) => rows))).toEqual(range(1, count));
    expect(pages.at(-1)!.position).toEqual({ ...start, revision: BigInt(count) });
  });

  test.each([
    ["another epoch", { epoch: "another", revision: 1n }],
    ["no epoch", { epoch: "", revision: 0n }],
    ["a revision that has not been", { revision: 3n }],
    ["the last int64", { revision: maxPetId }],
  ])("a position with %s is reset", async (_what, position) => {
    await store.write([create(1n), create(2n)]);
    expect(await store.changesAfter({ ...start, ...position }, 10)).toEqual({ kind: "reset" });
  });

  test("a batch of 1,201 changes is written whole, and one that changes nothing takes no revision", async () => {
    const changes = range(1, 1_201).map((petId) => create(petId, Number(petId)));
    const outcomes = await store.write(changes);
    expect(outcomes).toHaveLength(1_201);
    expect(outcomes.every((outcome, i) => outcome.kind === "done" && outcome.item.revision === BigInt(i + 1))).toBe(
      true,
    );
    expect(await allPages(store, 1_000)).toEqual(
      outcomes.map((outcome) => ("item" in outcome ? { ...outcome.item } : 0)),
    );
    expect(new Set(kinds(await store.write(changes)))).toEqual(new Set(["already_exists"]));
    await store.write(range(1, 1_201).map((petId) => update(petId, Number(petId))));
    expect(await store.position()).toEqual({ ...start, revision: 1_201n });
  });

  test("an entry that was removed can be made again", async () => {
    await store.write([create(1n, 5), remove(1n)]);
    await store.write([create(1n, 6)]);
    expect(await store.get(1n)).toMatchObject({ quantity: 6, revision: 3n });
    expect(await allPages(store, 10)).toHaveLength(1);
    const [page] = await follow(store, start, 10);
    expect(page!.rows).toEqual([expect.objectContaining({ petId: 1n, quantity: 6, revision: 3n, removed: false })]);
  });

  test("commit order is revision order: who sees a revision has seen all before it, whoever writes", async () => {
    const transaction = 7;
    const each = 60 * transaction;
    let over = false;
    const writing = runWriters(
      url(),
      [0, 1, 2].map((i) => ["create", `${i * each}`, `${each}`, `${transaction}`]),
    ).finally(() => {
      over = true;
    });
    const states = new Set<bigint>();
    const seen: bigint[] = [];
    let position = start;
    for (let last = false; !last; ) {
      last = over;
      const changes = await store.changesAfter(position, 50);
      if (changes.kind === "reset") throw new Error("the position was refused");
      // Each entry is written once, so there is a row for each revision: none is missing, and none comes late.
      const expected = changes.rows.map((_, i) => position.revision + 1n + BigInt(i));
      expect(changes.rows.map(({ revision }) => revision)).toEqual(expected);
      expect(changes.position).toEqual({ ...start, revision: expected.at(-1) ?? position.revision });
      if (!changes.more) {
        states.add(changes.position.revision);
        // A transaction is there whole or not at all.
        expect(changes.position.revision % BigInt(transaction)).toBe(0n);
      }
      last &&= !changes.more;
      seen.push(...petIds(changes.rows));
      position = changes.position;
      await setImmediate();
    }
    expect(await writing).toEqual(Array(3).fill({ done: each }));
    expect(seen.toSorted((a, b) => Number(a - b))).toEqual(range(0, 3 * each - 1));
    expect(states.size).toBeGreaterThan(3); // it did look while they were writing
  });

  test("no update is lost when writers that know of each other's revisions compete", async () => {
    await store.write([create(1n, 0)]);
    const results = await runWriters(url(), Array(3).fill(["increment", "1", "50"]));
    expect(results.map(({ done }) => done)).toEqual([50, 50, 50]);
    expect(results.reduce((sum, { refused }) => sum + refused!, 0)).toBeGreaterThan(0); // they did compete
    expect(await store.get(1n)).toMatchObject({ quantity: 150, revision: 151n });
    expect(await store.position()).toMatchObject({ revision: 151n });
  });

  describe("while another process holds the lock", () => {
    let other: OpenStock;
    beforeAll(async () => {
      other = openStock(url(), { ...databaseDefaults, poolMax: 1 });
      stack.defer(() => other.close());
      const isSqlite = url().startsWith("sqlite:");
      await other.db.raw(isSqlite ? "PRAGMA busy_timeout = 50" : "SET SESSION innodb_lock_wait_timeout = 1");
    });

    test("a write that waited too long is tried again and happens once", async () => {
      const lock = await holdWriteLock(url());
      const failed = new Promise<string>((resolve) => {
        other.db.once("query-error", ({ code }: { code: string }) => resolve(code));
      });
      const writing = other.store.write([create(1n, 5)]);
      expect(await failed).toMatch(/^(ER_LOCK_WAIT_TIMEOUT|SQLITE_BUSY)$/);
      await lock.release();
      expect(kinds(await writing)).toEqual(["done"]);
      expect(await store.position()).toMatchObject({ revision: 1n });
    });

    test("a write gives up after four attempts, has changed nothing, and the next one works", async () => {
      const lock = await holdWriteLock(url());
      const failures = failuresOf(other.db);
      await expect(other.store.write([create(1n)])).rejects.toBeInstanceOf(StockUnavailableError);
      expect(failures).toHaveLength(4);
      await lock.release();
      expect(await store.position()).toEqual(start);
      expect(kinds(await other.store.write([create(1n)]))).toEqual(["done"]);
    });

    test("reading goes on", async () => {
      await store.write([create(1n)]);
      const lock = await holdWriteLock(url());
      expect(await other.store.get(1n)).toBeDefined();
      expect(await other.store.changesAfter(start, 10)).toMatchObject({ rows: [{ petId: 1n }] });
      expect(await allPages(other.store, 10)).toHaveLength(1);
      await lock.release();
    });
  });
});

describe("a write that deadlocks (MySQL/MariaDB)", () => {
  const stack = suiteStack();

  test("is tried again and happens once", async () => {
    const url = await createMysqlDatabase();
    stack.defer(() => dropDatabase(url));
    await migrateStock(url);
    const { db, store, close } = openStock(url);
    stack.defer(close);
    await store.write(range(1, 300).map((petId) => create(petId)));
    const failures = failuresOf(db);

    // Somebody who takes the locks the other way round, and has done more, so that the server gives up the write.
    const other = await connectMysql(url);
    stack.defer(() => other.end());
    await other.query("BEGIN");
    await other.query("UPDATE stock SET quantity = quantity + 1");
    const writing = store.write([update(1n, 50), update(2n, 50)]);
    await untilRunning(url, "insert into");
    await other.query("UPDATE stock_head SET revision = revision");
    await other.query("COMMIT");
    expect(kinds(await writing)).toEqual(["done", "done"]);
    expect(failures).toEqual(["ER_LOCK_DEADLOCK"]);
    expect(await store.get(1n)).toMatchObject({ quantity: 50, revision: 301n });
    expect(await store.position()).toMatchObject({ revision: 302n });
  });
});

describe("a stock that cannot be reached", () => {
  const stack = suiteStack();
  const open = (url: string): StockStore => {
    const stock = openStock(url, { ...databaseDefaults, acquireTimeoutMs: 500 });
    stack.defer(() => stock.close());
    return stock.store;
  };
  const broken: [string, (stack: Stack) => Promise<string>][] = [
    ["nobody listens", async () => `mysql://someone:s3cret@127.0.0.1:${await freePort()}/stock`],
    ["the file is no database", notADatabase],
    ["MySQL has no schema", () => keep(createMysqlDatabase())],
    ["SQLite has no schema", () => keep(createSqliteDatabase())],
  ];
  async function keep(creating: Promise<string>): Promise<string> {
    const url = await creating;
    stack.defer(() => dropDatabase(url));
    return url;
  }
  async function notADatabase(): Promise<string> {
    const url = await keep(createSqliteDatabase());
    await writeFile(sqliteFile(url), "petId,quantity,status\n".repeat(100));
    return url;
  }

  test.each(broken)("is StockUnavailableError with the cause, whatever is asked for: %s", async (_why, urlOf) => {
    const store = open(await urlOf(stack));
    const operations: Record<string, () => Promise<unknown>> = {
      ping: () => store.ping(),
      position: () => store.position(),
      get: () => store.get(1n),
      pages: () => allPages(store, 10),
      changesAfter: () => store.changesAfter({ epoch: "", revision: 0n }, 10),
      write: () => store.write([create(1n)]),
    };
    for (const [name, operation] of Object.entries(operations)) {
      const error = await operation().then(
        () => `${name} succeeded`,
        (thrown) => thrown,
      );
      expect(error).toBeInstanceOf(StockUnavailableError);
      expect(error.message).toBe("the stock database is not available");
      expect(error.cause.message).toMatch(/./);
    }
  });
});

describeEachDatabase("a stock of 100,000 entries", (url) => {
  const stack = suiteStack();
  const count = 100_000;
  let stock: OpenStock;
  let epoch: string;

  beforeAll(async () => {
    await migrateStock(url());
    // One connection, so that what it counts is what the store's statements did.
    stock = openStock(url(), { ...databaseDefaults, poolMax: 1 });
    stack.defer(() => stock.close());
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
    const explained = await stock.db.raw(`${isSqlite ? "EXPLAIN QUERY PLAN" : "EXPLAIN"} ${sql}`, bindings as never);
    return {
      read,
      plan: JSON.stringify(isSqlite ? explained : explained[0], (_, v) => (typeof v === "bigint" ? Number(v) : v)),
    };
  }

  test.each([
    ["at the head", 0, 1_000],
    ["10 changes behind", 10, 1_000],
    ["half the stock behind, for a page of 1,000", 50_000, 1_000],
    ["all of the stock behind, for a page of 10", 100_000, 10],
  ])("what changed since costs what changed, not the stock: %s", async (_where, behind, limit) => {
    const position = { epoch, revision: BigInt(count - behind) };
    const rows = Math.min(behind, limit);
    const { read, plan } = await costOf(async () => {
      expect(await stock.store.changesAfter(position, limit)).toMatchObject({ rows: { length: rows } });
    });
    // A row through the index, the temporary table of the page and its order: the same few times, at any distance.
    expect(read).toBeLessThanOrEqual(30 + 6 * rows);
    // At the head one row of the counter says that there is nothing more.
    expect(plan).toMatch(rows === 0 ? /stock_head/ : /stock_revision_index/);
    expect(plan).not.toMatch(/SCAN stock\b/);
  });

  test("a page of the list costs a page, wherever it is", async () => {
    const { read, plan } = await costOf(async () => {
      for await (const page of stock.store.pages(50)) if (page[0]!.petId > 200n) break;
    });
    expect(read).toBeLessThanOrEqual(5 * 55);
    expect(plan).toMatch(/PRIMARY|INTEGER PRIMARY KEY|USING INDEX/);
  });

  test("one entry costs one row", async () => {
    const { read } = await costOf(async () => {
      expect(await stock.store.get(BigInt(count))).toBeDefined();
    });
    expect(read).toBeLessThanOrEqual(2);
  });
});
