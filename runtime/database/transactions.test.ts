import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { databaseDefaults, openDatabase } from "./open.ts";
import { retried, retriedIfUndone, Transaction } from "./statements.ts";

const db = openDatabase("sqlite::memory:");
afterAll(() => db.destroy());

/** Work that fails with an error of the database a number of times, then succeeds. */
function failing(times: number, code: string, sqlState?: string) {
  let calls = 0;
  const work = async () => {
    calls += 1;
    if (calls <= times) throw Object.assign(new Error("from the database"), { code, sqlState });
    return "done";
  };
  return { work, calls: () => calls };
}

test("a transaction that the database has rolled back runs again as a whole", async () => {
  for (const code of ["ER_LOCK_DEADLOCK", "ER_LOCK_WAIT_TIMEOUT", "ER_CHECKREAD", "ER_OPTION_PREVENTS_STATEMENT"]) {
    const { work, calls } = failing(1, code);
    expect(await retried(work)).toBe("done");
    expect(calls()).toBe(2);
  }
});

test("what another member may still commit runs again only if it may happen twice", async () => {
  const lost = ["ER_TRANSACTION_ROLLBACK_DURING_COMMIT", "40000"] as const;
  expect(await retried(failing(1, ...lost).work)).toBe("done");
  const { work, calls } = failing(1, ...lost);
  await expect(retriedIfUndone(work)).rejects.toThrow("from the database");
  expect(calls()).toBe(1);
  expect(await retriedIfUndone(failing(1, "ER_LOCK_DEADLOCK").work)).toBe("done");
});

test("a transaction that the database rolls back four times is given up", async () => {
  const { work, calls } = failing(4, "ER_LOCK_DEADLOCK");
  await expect(retried(work)).rejects.toThrow("from the database");
  expect(calls()).toBe(4);
});

test.each(["ER_DUP_ENTRY", "SQLITE_BUSY"])("a transaction that fails with %s is never retried", async (code) => {
  const { work, calls } = failing(1, code);
  await expect(retried(work)).rejects.toThrow("from the database");
  expect(calls()).toBe(1);
});

describe("transactions", () => {
  const insert = (n: number) => ({ sql: "insert into numbers values (?)", bindings: [n] });
  const numbers = async () => (await db("numbers").pluck("n")).map(Number);
  beforeAll(() => db.schema.createTable("numbers", (table) => void table.integer("n").primary()));
  beforeEach(() => db("numbers").delete());

  test("a transaction that is committed keeps the results of its statements", async () => {
    const transaction = await Transaction.open(db);
    await transaction.run(insert(1));
    expect(await transaction.commit(insert(2), insert(3))).toHaveLength(2);
    await transaction.end();
    expect(await numbers()).toEqual([1, 2, 3]);
  });

  test("a transaction that is not committed keeps nothing, and gives its connection back", async () => {
    const transaction = await Transaction.open(db);
    await transaction.run(insert(1));
    await transaction.end();
    expect(await numbers()).toEqual([]);
  });

  test("a transaction that fails keeps nothing, not even of the statements before the failing one", async () => {
    const transaction = await Transaction.open(db);
    await expect(transaction.commit(insert(1), insert(1))).rejects.toThrow("UNIQUE");
    await transaction.end();
    expect(await numbers()).toEqual([]);
  });

  test("a transaction whose ROLLBACK fails gives no connection back, because it may still be open", async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), "petstore-rollback-"));
    const own = openDatabase(`sqlite:${join(folder.path, "numbers.sqlite")}`, { ...databaseDefaults, makesFile: true });
    await own.schema.createTable("numbers", (table) => void table.integer("n").primary());
    const prepare = Sqlite.prototype.prepare;
    const spy = import.meta.jest.spyOn(Sqlite.prototype, "prepare").mockImplementation(function (
      this: Sqlite.Database,
      sql,
    ) {
      if (sql === "ROLLBACK") throw new Error("no rollback");
      return prepare.call(this, sql);
    });
    const failed = await Transaction.open(own);
    await failed.run(insert(1));
    await failed.end();
    spy.mockRestore();
    const next = await Transaction.open(own);
    await next.commit(insert(2));
    await next.end();
    expect((await own("numbers").pluck("n")).map(Number)).toEqual([2]);
    await own.destroy();
  });

  test("a transaction that is not used gives its connection back", async () => {
    await (await Transaction.open(db)).end();
    expect(await numbers()).toEqual([]);
  });
});

test("SQLite waits for the disk at each commit, so that a write survives a power cut", async () => {
  expect(await db.raw("pragma synchronous")).toEqual([{ synchronous: 2n }]); // FULL
});
