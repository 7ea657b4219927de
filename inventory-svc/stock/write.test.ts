import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { holdWriteLock, migrateStock, openStock, statementsOf, suiteStock } from "../../test/support/open-stock.ts";
import { asGroup } from "../../test/support/stock-changes.ts";
import type { Change } from "./change.ts";
import { StockUnavailableError } from "./stock-errors.ts";
import { StockStore } from "./stock-store.ts";

const create = (petId: bigint): Change => ({ kind: "create", petId, quantity: 1, status: "available" });
const update = (petId: bigint, quantity: number): Change => ({ kind: "update", petId, quantity });

describe("a write", () => {
  const { db } = suiteStock();
  let store: StockStore;
  beforeEach(async () => {
    store = new StockStore(db); // one that knows nothing
    await store.write([create(1n), create(2n)]);
  });
  afterEach(() => import.meta.jest.restoreAllMocks());

  /** Makes the database fail the next `times` statements that begin like this. @returns how many it has failed */
  function failStatements(beginning: string, code: string, times: number) {
    const prepare = Sqlite.prototype.prepare;
    let failed = 0;
    import.meta.jest.spyOn(Sqlite.prototype, "prepare").mockImplementation(function (this: Sqlite.Database, sql) {
      if (sql.startsWith(beginning) && failed < times) {
        failed += 1;
        throw Object.assign(new Error("from the database"), { code });
      }
      return prepare.call(this, sql);
    });
    return () => failed;
  }

  test("that the database takes back is tried again, and is given up after four attempts", async () => {
    failStatements("BEGIN", "SQLITE_BUSY_SNAPSHOT", 3);
    expect(await store.write([update(1n, 7)])).toMatchObject([{ kind: "done", item: { quantity: 7 } }]);
    import.meta.jest.restoreAllMocks();
    const failed = failStatements("BEGIN", "SQLITE_BUSY_SNAPSHOT", 9);
    await expect(store.write([update(1n, 8)])).rejects.toBeInstanceOf(StockUnavailableError);
    expect(failed()).toBe(4);
    import.meta.jest.restoreAllMocks();
    expect(await store.get(1n)).toMatchObject({ quantity: 7 });
  });

  test("waits once for an SQLite file that another process holds, and the next one works", async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), "stock-"));
    const url = `sqlite:${join(folder.path, "stock.sqlite")}`;
    await migrateStock(url);
    const stock = openStock(url);
    await stock.db.raw("PRAGMA busy_timeout = 1");
    let failures = 0;
    stock.db.on("query-error", () => {
      failures += 1;
    });
    const lock = await holdWriteLock(url);
    await expect(stock.store.write([create(1n)])).rejects.toBeInstanceOf(StockUnavailableError);
    expect(failures).toBe(1);
    await lock.release();
    expect(await stock.store.write([create(1n)])).toMatchObject([{ kind: "done", item: { revision: 1n } }]);
    await stock.close();
  });

  test("that fails for good is tried once, and changes nothing", async () => {
    const before = await store.get(1n);
    const failed = failStatements("insert into `stock`", "SQLITE_FULL", 9);
    await expect(store.write([update(1n, 7)])).rejects.toBeInstanceOf(StockUnavailableError);
    expect(failed()).toBe(1);
    import.meta.jest.restoreAllMocks();
    expect(await store.get(1n)).toEqual(before);
  });

  test("is not acknowledged without the head", async () => {
    const head = await db("stock_head").first();
    await db("stock_head").delete();
    await expect(store.write([update(1n, 7)])).rejects.toBeInstanceOf(StockUnavailableError);
    await db("stock_head").insert(head);
  });

  test("without a change sends nothing to the database", async () => {
    const isWanted = () => true;
    const unwanted = { group: asGroup([update(1n, 7)]), isWanted: () => false };
    const empty = { group: asGroup([]), isWanted };
    const sent = await statementsOf(db, async () => {
      expect(await store.writeWanted([unwanted, empty])).toEqual(new Map([[empty, []]]));
    });
    expect(sent).toEqual([]);
    expect(await store.writeWanted([empty, { group: asGroup([update(1n, 7)]), isWanted }])).toMatchObject({ size: 2 });
  });

  test("that its caller stops wanting between two attempts is not tried again", async () => {
    let isWanted = true;
    const failed = failStatements("BEGIN", "SQLITE_BUSY_SNAPSHOT", 3);
    db.once("query-error", () => {
      isWanted = false;
    });
    expect(await store.writeWanted([{ group: asGroup([update(1n, 7)]), isWanted: () => isWanted }])).toEqual(new Map());
    expect(failed()).toBe(1);
  });
});
