import { setImmediate } from "node:timers/promises";
import { ExpiredError, GroupCommit } from "../../inventory-svc/stock/group-commit.ts";
import { OutcomeUnknownError, StockUnavailableError } from "../../inventory-svc/stock/stock-errors.ts";
import type { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import type { Position } from "../../proto/pet.ts";
import { acquireConnection, releaseConnection } from "../../runtime/database/knex-internals.ts";
import { databaseDefaults } from "../../runtime/database/open.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { connectMysql } from "../support/mysql-client.ts";
import {
  holdLockFor,
  holdWriteLock,
  type OpenStock,
  openMigratedStock,
  openStock,
  untilRunning,
} from "../support/open-stock.ts";
import { cleanup } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import {
  allPages,
  asGroup,
  create,
  failuresOf,
  kinds,
  newMysqlStock,
  range,
  update,
} from "../support/stock-changes.ts";

describeEachDatabase("writes that meet a fault", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let stock: OpenStock;
  let store: StockStore;
  let start: Position;
  beforeAll(async () => {
    stock = await openMigratedStock(stack, url());
    store = stock.store;
  });
  beforeEach(async () => {
    await stock.empty();
    start = await store.position();
  });

  describe("a caller that leaves", () => {
    test("a change is not written when its caller leaves while another process holds the lock", async () => {
      await store.write([create(1n, 5), create(2n, 5)]);
      const commits = new GroupCommit({
        store,
        maxBatch: 100,
        maxQueued: 100,
        onDequeued: () => {},
        onWritten: () => {},
      });
      const lock = await holdLockFor(url(), 500);
      const untilMs = performance.now() + 100;
      const late = commits.submit(asGroup([update(1n, 50)]), () => performance.now() < untilMs);
      const patient = commits.submit(asGroup([update(2n, 60)]), () => true);
      await expect(late).rejects.toBeInstanceOf(ExpiredError);
      expect(await patient).toMatchObject([{ kind: "done", item: { quantity: 60, revision: 3n } }]);
      await lock.released;
      expect(await store.get(1n)).toMatchObject({ quantity: 5, revision: 1n });
    });

    test("a transaction that no caller wants any more changes nothing and frees the lock", async () => {
      await store.write([create(1n, 5)]);
      const lock = await holdLockFor(url(), 500);
      const untilMs = performance.now() + 100;
      const request = { group: asGroup([update(1n, 50)]), isWanted: () => performance.now() < untilMs };
      expect(await store.writeWanted([request])).toEqual(new Map());
      await lock.released;
      expect(await store.write([update(1n, 6)])).toMatchObject([{ kind: "done", item: { revision: 2n } }]);
    });

    test("a cancellation that arrives together with the lock is read before the changes are decided", async () => {
      await store.write([create(1n, 5)]);
      let isWanted = true;
      // As a socket that is read right after that of the database, in the same turn of the event loop.
      stock.db.once("query-response", () => {
        setImmediate().then(() => {
          isWanted = false;
        });
      });
      expect(await store.writeWanted([{ group: asGroup([update(1n, 50)]), isWanted: () => isWanted }])).toEqual(
        new Map(),
      );
      expect(await store.get(1n)).toMatchObject({ quantity: 5 });
    });
  });

  describe("a lock of another process", () => {
    let other: OpenStock;
    beforeAll(async () => {
      other = openStock(url(), { ...databaseDefaults, poolMax: 1 });
      stack.defer(() => other.close());
      if (!url().startsWith("sqlite:")) await other.db.raw("SET SESSION innodb_lock_wait_timeout = 1");
    });

    test("a write that waited too long for the lock of another process is retried and happens once", async () => {
      if (url().startsWith("sqlite:")) return; // its wait for a lock is not repeated
      const lock = await holdWriteLock(url());
      const failed = new Promise<string>((resolve) => {
        other.db.once("query-error", ({ code }: { code: string }) => resolve(code));
      });
      const writing = other.store.write([create(1n, 5)]);
      expect(await failed).toBe("ER_LOCK_WAIT_TIMEOUT");
      await lock.release();
      expect(kinds(await writing)).toEqual(["done"]);
      expect(await store.position()).toMatchObject({ revision: 1n });
    });

    test("a write gives up after four attempts and changes nothing, and the next one works", async () => {
      if (url().startsWith("sqlite:")) return; // its wait for a lock is not repeated
      const lock = await holdWriteLock(url());
      const failures = failuresOf(other.db);
      await expect(other.store.write([create(1n)])).rejects.toBeInstanceOf(StockUnavailableError);
      expect(failures).toHaveLength(4);
      await lock.release();
      expect(await store.position()).toEqual(start);
      expect(kinds(await other.store.write([create(1n)]))).toEqual(["done"]);
    });

    test("reads go on while another process holds the lock", async () => {
      await store.write([create(1n)]);
      const lock = await holdWriteLock(url());
      expect(await other.store.get(1n)).toBeDefined();
      expect(await other.store.changesAfter(start, 10)).toMatchObject({ rows: [{ petId: 1n }] });
      expect(await allPages(other.store, 10)).toHaveLength(1);
      await lock.release();
    });
  });
});

describe("a read-only server (MySQL/MariaDB)", () => {
  const stack = suiteStack();

  test("connections to it are discarded: the write happens once, over another connection", async () => {
    const { db, store } = await newMysqlStock(stack, { ...databaseDefaults, poolMax: 6 });
    await store.write([create(1n)]);
    for (const quantity of [7, 8]) {
      const failures = failuresOf(db);
      const stale = await Promise.all(Array.from({ length: 6 }, () => acquireConnection(db)));
      for (const connection of stale) {
        await db.raw("SET SESSION TRANSACTION READ ONLY").connection(connection);
        await releaseConnection(db, connection);
      }
      const { revision } = await store.position();
      expect(kinds(await store.write([update(1n, quantity)]))).toEqual(["done"]);
      expect(await store.position()).toMatchObject({ revision: revision + 1n });
      expect(failures).toHaveLength(1);
    }
  });
});

describe("deadlocks (MySQL/MariaDB)", () => {
  const stack = suiteStack();

  test("a write that deadlocks is retried and happens once", async () => {
    const { url, db, store } = await newMysqlStock(stack);
    await store.write(range(1, 300).map((petId) => create(petId)));
    const failures = failuresOf(db);

    // Another writer takes the locks in the opposite order. It has done more, so the server takes back the store's
    // write.
    const other = await connectMysql(url);
    stack.defer(() => other.end());
    await other.query("BEGIN");
    await other.query("UPDATE stock SET quantity = quantity + 1");
    const writing = store.write([update(1n, 50), update(2n, 50)]);
    await untilRunning(url, "insert");
    await other.query("UPDATE stock_head SET revision = revision");
    await other.query("COMMIT");
    expect(kinds(await writing)).toEqual(["done", "done"]);
    expect(failures).toEqual(["ER_LOCK_DEADLOCK"]);
    expect(await store.get(1n)).toMatchObject({ quantity: 50, revision: 301n });
    expect(await store.position()).toMatchObject({ revision: 302n });
  });
});

describe("a cut connection (MySQL/MariaDB)", () => {
  const stack = suiteStack();

  test("a write that is cut off while it waits for the lock happens once, over another connection", async () => {
    const { url, store } = await newMysqlStock(stack);
    await store.write([create(1n, 5)]);
    const lock = await holdWriteLock(url);
    const writing = store.write([update(1n, 50)]);
    const connectionId = await untilRunning(url, "BEGIN", "select");
    const other = await connectMysql(url);
    stack.defer(() => other.end());
    await other.query(`KILL ${connectionId}`);
    await lock.release();
    expect(kinds(await writing)).toEqual(["done"]);
    expect(await store.get(1n)).toMatchObject({ quantity: 50, revision: 2n });
  });

  test("a write happens although the server has closed all connections during a standstill", async () => {
    const { db, store } = await newMysqlStock(stack, { ...databaseDefaults, silenceTimeoutMs: 500 });
    await store.write([create(1n, 5)]);
    for (const quantity of [6, 7]) {
      await Promise.all(Array.from({ length: 6 }, () => db.raw("DO SLEEP(0.1)"))); // over a connection each
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3_000);
      if (quantity === 7) await setImmediate(); // in the other half it has noticed some of that
      expect(kinds(await store.write([update(1n, quantity)]))).toEqual(["done"]);
    }
  });

  test("a write whose commit is cut off has an unknown outcome, and the next write works", async () => {
    const { url, store } = await newMysqlStock(stack);
    await store.write([create(1n, 5), create(2n, 5)]);
    const other = await connectMysql(url);
    stack.defer(() => other.end());
    await other.query("BEGIN");
    await other.query("SELECT * FROM stock WHERE pet_id = 1 FOR UPDATE");
    const writing = store.write([update(1n, 50)]).catch((error: unknown) => error);
    await other.query(`KILL ${await untilRunning(url, "insert")}`);
    expect(await writing).toBeInstanceOf(OutcomeUnknownError);
    await other.query("ROLLBACK");
    expect(await store.get(1n)).toMatchObject({ quantity: 5, revision: 1n });
    expect(kinds(await store.write([update(1n, 60)]))).toEqual(["done"]);
    expect(await store.position()).toMatchObject({ revision: 3n });
  });
});
