import { InvariantError } from "../../runtime/invariant.ts";
import { pagesOf, suiteStock } from "../../test/support/open-stock.ts";
import type { Change } from "./change.ts";
import { ledgerKeptMsOf } from "./cleanup.ts";
import { StockUnavailableError } from "./stock-errors.ts";
import { StockStore } from "./stock-store.ts";

const create = (petId: bigint): Change => ({ kind: "create", petId, quantity: 1, status: "available" });

describe("the store", () => {
  const { db, retention } = suiteStock();
  let store: StockStore;
  beforeEach(() => {
    store = new StockStore(db); // one that knows nothing
  });

  test("gives what changed after a position, and nothing where the head alone moved on", async () => {
    const start = await store.position();
    await store.write([create(1n), create(2n)]);
    const position = { ...start, revision: 2n };
    const rows = [1n, 2n].map((petId) => expect.objectContaining({ petId, revision: petId, removed: false }));
    expect(await store.changesAfter(start, 10)).toEqual({ kind: "changes", position, floor: 0n, rows, more: false });
    await db("stock_head").update({ revision: 9 });
    const moved = { kind: "changes", position: { ...start, revision: 9n }, floor: 0n, rows: [], more: false };
    expect(await store.changesAfter(position, 10)).toEqual(moved);
  });

  test("the last revision is the latest one read or written, whichever replica made it", async () => {
    const other = new StockStore(db);
    await other.write([create(1n)]);
    expect(other.lastRevision).toBe(1n);
    expect(store.lastRevision).toBe(0n);
    await store.position();
    expect(store.lastRevision).toBe(1n);
  });

  test("a head that goes back is refused to reads and writes, until another epoch begins", async () => {
    await store.write([create(1n), create(2n)]);
    await db("stock_head").update({ revision: 1 });
    await expect(store.position()).rejects.toThrow(InvariantError);
    await db("stock_head").update({ revision: 0 });
    await expect(store.write([create(3n)])).rejects.toThrow(InvariantError);
    await db("stock_head").update({ epoch: "another", revision: 1 });
    expect(await store.position()).toEqual({ epoch: "another", revision: 1n });
  });

  test("changes that are newer than the head are no answer", async () => {
    const start = await store.position();
    await store.write([create(1n)]);
    await db("stock").update({ revision: 2 });
    await expect(store.changesAfter(start, 10)).rejects.toThrow(InvariantError);
  });

  test("the store's pages give every entry, also the one that is alone on the last page", async () => {
    await store.write([create(1n), create(2n), create(3n)]);
    const pages = await Array.fromAsync(pagesOf(store, 2));
    expect(pages.map((page) => page.map(({ petId }) => petId))).toEqual([[1n, 2n], [3n]]);
  });

  test("a new epoch moves the head on, and resets callers with a position of the old one", async () => {
    await store.write([create(1n)]);
    const before = await store.position();
    const after = await store.beginEpoch();
    expect(after.epoch).not.toBe(before.epoch);
    expect(after.revision).toBeGreaterThan(before.revision);
    expect(await store.position()).toEqual(after);
    expect(await store.changesAfter(before, 10)).toEqual({ kind: "reset" });
  });

  test("records that are still needed stay, and a cleanup that finds no older ones is over", async () => {
    await store.write([create(1n), { kind: "adjust", petId: 1n, delta: 1, once: { id: "a", fingerprint: "1" } }]);
    expect(await retention.deleteFromLedger(ledgerKeptMsOf(0), 10, "revisions", 0n)).toBeUndefined();
    expect(await db("stock_ledger").orderBy("id").pluck("once_id")).toEqual([null, "a"]);
  });

  test.each(["stock_head", "stock_ledger"])("is not ready without the table %s", async (table) => {
    await store.ping();
    await db.schema.renameTable(table, "away");
    await expect(store.ping()).rejects.toBeInstanceOf(StockUnavailableError);
    await db.schema.renameTable("away", table);
  });
});
