import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { holdWriteLock, migrateStock, openStock, statementsOf, suiteStock } from "../../test/support/stock.ts";
import type { Change } from "./changes.ts";
import { OutcomeUnknownError, StockUnavailableError } from "./errors.ts";
import { StockStore } from "./store.ts";

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

  /** Writes until the store predicts what its next write meets. */
  async function writeAlone() {
    for (const quantity of [2, 3, 4, 5]) await store.write([update(1n, quantity)]);
  }

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

  test("a write that the database takes back is tried again, and is given up after four attempts", async () => {
    failStatements("BEGIN", "SQLITE_BUSY_SNAPSHOT", 3);
    expect(await store.write([update(1n, 7)])).toMatchObject([{ kind: "done", item: { quantity: 7 } }]);
    import.meta.jest.restoreAllMocks();
    const failed = failStatements("BEGIN", "SQLITE_BUSY_SNAPSHOT", 9);
    await expect(store.write([update(1n, 8)])).rejects.toBeInstanceOf(StockUnavailableError);
    expect(failed()).toBe(4);
    import.meta.jest.restoreAllMocks();
    expect(await store.get(1n)).toMatchObject({ quantity: 7 });
  });

  test("a write waits once for an SQLite file that another process holds, and the next one works", async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), "stock-"));
    const url = `sqlite:${join(folder.path, "stock.sqlite")}`;
    await migrateStock(url);
    const stock = openStock(url);
    await stock.db.raw("PRAGMA busy_timeout = 1");
    let failures = 0;
    stock.db.on("query-error", () => {
      failures += 1;
    });
    for (const write of [() => stock.store.write([create(1n)]), () => stock.store.takeTurn(true)]) {
      const lock = await holdWriteLock(url);
      failures = 0;
      await expect(write()).rejects.toBeInstanceOf(StockUnavailableError);
      expect(failures).toBe(1);
      await lock.release();
    }
    expect(await stock.store.write([create(1n)])).toMatchObject([{ kind: "done", item: { revision: 1n } }]);
    await stock.close();
  });

  test("a write that fails for good is tried once, whether or not it was predicted, and changes nothing", async () => {
    for (const prepareStore of [async () => {}, writeAlone]) {
      await prepareStore();
      const before = await store.get(1n);
      const failed = failStatements("insert into `stock`", "SQLITE_FULL", 9);
      await expect(store.write([update(1n, 7)])).rejects.toBeInstanceOf(StockUnavailableError);
      expect(failed()).toBe(1);
      import.meta.jest.restoreAllMocks();
      expect(await store.get(1n)).toEqual(before);
    }
  });

  test("a write is not acknowledged without the counter, whether or not it was predicted", async () => {
    const head = await db("stock_head").first();
    await writeAlone();
    await db("stock_head").delete();
    await expect(store.write([update(1n, 7)])).rejects.toBeInstanceOf(OutcomeUnknownError);
    await expect(store.write([update(1n, 7)])).rejects.toBeInstanceOf(StockUnavailableError);
    await expect(store.takeTurn(true)).rejects.toBeInstanceOf(StockUnavailableError);
    await db("stock_head").insert(head);
  });

  test("a write in a turn that has the lock already does not take it again", async () => {
    const sent = await statementsOf(db, async () => {
      await using turn = await new StockStore(db).takeTurn(true);
      expect(await turn.write([[update(1n, 7)]])).toMatchObject([[{ kind: "done", item: { quantity: 7 } }]]);
    });
    expect(sent.filter((sql) => sql.includes("select `epoch`"))).toHaveLength(1);
  });

  test("a turn that has the lock and is not used gives its connection back", async () => {
    await (await new StockStore(db).takeTurn(true))[Symbol.asyncDispose]();
    expect(await store.write([update(1n, 7)])).toMatchObject([{ kind: "done" }]);
  });

  test("a write alone reads no entry that it knows, also one that the write before left as it was", async () => {
    await writeAlone();
    const reads = async (change: Change) => {
      const sent = await statementsOf(db, () => store.write([change]));
      return sent.filter((sql) => sql.startsWith("select")).length;
    };
    expect(await reads(update(1n, 7))).toBe(0);
    expect(await reads(update(2n, 1))).toBeGreaterThan(0); // changes nothing
    expect(await reads(update(2n, 3))).toBe(0);
    expect(await store.get(2n)).toMatchObject({ quantity: 3 });
  });
});
