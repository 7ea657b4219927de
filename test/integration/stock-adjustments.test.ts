import { setImmediate } from "node:timers/promises";
import type { Outcome } from "../../inventory-svc/stock/change.ts";
import { ledgerKeptMsOf } from "../../inventory-svc/stock/cleanup.ts";
import { OutcomeUnknownError, StockUnavailableError } from "../../inventory-svc/stock/stock-errors.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { describeEachDatabase } from "../support/databases.ts";
import {
  deleteOldChanges,
  failAdjustments,
  type OpenStock,
  openMigratedStock,
  openStock,
} from "../support/open-stock.ts";
import { cleanup } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import {
  adjust,
  allPages,
  create,
  failuresOf,
  kinds,
  noteStatements,
  range,
  remove,
  runWriters,
  update,
  withoutRemoved,
} from "../support/stock-changes.ts";

describeEachDatabase("adjustments in the database", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let stock: OpenStock;
  let store: StockStore;
  beforeAll(async () => {
    stock = await openMigratedStock(stack, url());
    store = new StockStore(stock.db, false);
  });
  beforeEach(async () => {
    await stock.empty();
  });

  const recorded = () => stock.db("stock_ledger").pluck("once_id").orderBy("id");

  test("adjustments that are repeated give the first result, even at a replica or after a restart", async () => {
    await store.write([create(1n, 5), { kind: "update", petId: 1n, status: "sold" }]);
    const item = { petId: 1n, quantity: 2, status: "sold", revision: 3n };
    expect(await store.write([adjust("a", 1n, -3)])).toMatchObject([{ kind: "done", item }]);
    await store.write([update(1n, 100), remove(1n)]);
    const restarted = openStock(url());
    stack.defer(() => restarted.close());
    for (const replica of [store, restarted.store]) {
      expect(await replica.write([adjust("a", 1n, -3)])).toEqual([{ kind: "replayed", item }]);
      expect(kinds(await replica.write([adjust("a", 1n, -2), adjust("A", 1n, -3)]))).toEqual([
        "id_reused",
        "not_found", // an id in another case is another id
      ]);
    }
    expect(await store.position()).toMatchObject({ revision: 5n });
  });

  test("adjustments are recorded in the transaction that makes them, all 1,201 of them or none", async () => {
    await store.write(range(1, 1_201).map((petId) => create(petId, 1)));
    const batch = range(1, 1_201).map((petId) => adjust(`id:${petId}`, petId, Number(petId)));
    // The insert of adjustments fails, which comes after the entries and the head: nothing of those may stay.
    const restore = await failAdjustments(stock.db);
    // Where COMMIT was sent in the same packet, an error of the server does not say whether it was reached.
    const error = url().startsWith("sqlite:") ? StockUnavailableError : OutcomeUnknownError;
    await expect(store.write(batch)).rejects.toBeInstanceOf(error);
    await restore();
    expect(await store.position()).toMatchObject({ revision: 1_201n });

    const outcomes = await store.write(batch);
    expect(new Set(kinds(outcomes))).toEqual(new Set(["done"]));
    const again = await store.write(batch);
    expect(new Set(kinds(again))).toEqual(new Set(["replayed"]));
    const items = (all: readonly Outcome[]) => withoutRemoved(all).map((outcome) => "item" in outcome && outcome.item);
    expect(items(again)).toEqual(items(outcomes));
    expect(await recorded()).toHaveLength(1_201);
  });

  test("adjustments happen once each when three processes make the same ones", async () => {
    await store.write(range(1, 210).map((petId) => create(petId, 0)));
    const results = await runWriters(url(), Array(3).fill(["adjust", "1", "210", "7"]));
    expect(results.reduce((sum, { done }) => sum + done, 0)).toBe(210);
    expect(results.map(({ refused }) => refused)).toEqual([0, 0, 0]);
    expect((await allPages(store, 1_000)).map(({ quantity }) => quantity)).toEqual(Array(210).fill(1));
    expect(await recorded()).toHaveLength(210);
  });

  test("adjustments cost nothing to a batch without any: its statements name no other table", async () => {
    await store.write([create(1n, 5)]);
    const statements = noteStatements(stock.db);
    await store.write([update(1n, 6)]);
    const plain = statements.splice(0).join(";");
    await store.write([update(1n, 7), adjust("a", 1n, 1)]);
    expect(plain).toMatch(
      /^BEGIN( IMMEDIATE)?;select [^;]*, epoch, revision from stock_head where id = 1( for update)?;select [a-z_, ]* from stock where pet_id in \(\?\);update stock_head set revision = \?, writes = writes \+ 1 where id = 1;insert into stock [^;]*;COMMIT$/,
    );
    expect(statements.join(";")).toContain("stock_ledger");
    if (!url().startsWith("sqlite:")) expect(statements).toHaveLength(2);
  });

  describe("deletion", () => {
    const retentionMs = ledgerKeptMsOf(0);

    /** Makes an adjustment of one pet of each of these ages. */
    async function makeAged(...agesMs: number[]): Promise<void> {
      await store.write([create(1n, 0)]);
      for (const [i, ageMs] of agesMs.entries()) {
        await store.write([adjust(`${i}`, 1n, 1)]);
        await age(ageMs, [`${i}`]);
      }
    }
    const age = (byMs: number, requestIds: readonly string[]) =>
      stock.db("stock_ledger").whereIn("once_id", requestIds).decrement("made_at", byMs);

    test("adjustments are deleted after 26 hours and not before, and can then be made again", async () => {
      await makeAged(retentionMs + 60_000, retentionMs - 60_000, 0);
      await deleteOldChanges(stock.retention, retentionMs);
      expect(await recorded()).toEqual(["1", "2"]);
      expect(kinds(await store.write([adjust("0", 1n, 1), adjust("1", 1n, 1)]))).toEqual(["done", "replayed"]);
      expect(retentionMs).toBe(26 * 60 * 60_000);
    });

    test("adjustments are deleted by the clock of the database, whatever that of the service says", async () => {
      const nowMs = Date.now();
      await store.write([create(1n, 0)]);
      const clock = import.meta.jest.spyOn(Date, "now");
      for (const [i, offsetMs] of [-2 * retentionMs, 2 * retentionMs].entries()) {
        clock.mockReturnValue(nowMs + offsetMs);
        await store.write([adjust(`${i}`, 1n, 1)]);
        await deleteOldChanges(stock.retention, retentionMs);
      }
      clock.mockRestore();
      expect(await recorded()).toEqual(["0", "1"]);
    });

    test("adjustments are deleted in bounded steps, those of a slow clock with the ones after them", async () => {
      await makeAged(16_000, 16_000, 16_000, 16_000, 16_000, 0, 16_000);
      const ids: bigint[] = await stock.db("stock_ledger").orderBy("id").pluck("id");
      expect(await stock.retention.deleteFromLedger(15_000, 2, "revisions", 0n)).toBe(ids[1]);
      expect(await recorded()).toEqual(["2", "3", "4", "5", "6"]);
      expect(await stock.retention.deleteFromLedger(15_000, 2, "revisions", ids[1]!)).toBe(ids[3]);
      expect(await stock.retention.deleteFromLedger(15_000, 2, "revisions", ids[3]!)).toBeUndefined();
      expect(await recorded()).toEqual(["5", "6"]);
      expect(await stock.retention.deleteFromLedger(-1, 10, "revisions", 0n)).toBeUndefined();
      expect(await recorded()).toEqual([]);
    });

    test("adjustments with a time in the future stay, and those after them are deleted nevertheless", async () => {
      const [old, future] = [retentionMs + 60_000, -60_000];
      await makeAged(old, future, future, future, old, 0);
      const ids: bigint[] = await stock.db("stock_ledger").orderBy("id").pluck("id");
      expect(await stock.retention.deleteFromLedger(retentionMs, 2, "revisions", 0n)).toBe(ids[1]);
      expect(await stock.retention.deleteFromLedger(retentionMs, 2, "revisions", ids[1]!)).toBe(ids[3]);
      expect(await stock.retention.deleteFromLedger(retentionMs, 2, "revisions", ids[3]!)).toBeUndefined();
      expect(await recorded()).toEqual(["1", "2", "3", "5"]);
    });

    test("adjustments are deleted by several services during writes, without error or young ones", async () => {
      const old = Array.from({ length: 3_000 }, (_, i) => adjust(`old${i}`, 1n, 1));
      const young = openStock(url());
      const writer = new StockStore(young.db, false);
      // On SQLite all share a connection, as in a process: two of one process would block each other.
      const others = url().startsWith("sqlite:") ? [young, young] : [openStock(url()), openStock(url())];
      for (const each of new Set([young, ...others])) stack.defer(() => each.close());
      await writer.write([create(1n, 0)]);
      await writer.write(old);
      await young.db("stock_ledger").decrement("made_at", 2 * retentionMs);
      const failures = [young, ...others].map(({ db }) => failuresOf(db));
      let over = false;
      const deleting = Promise.all(others.map((each) => deleteOldChanges(each.retention, retentionMs))).finally(() => {
        over = true;
      });
      let written = 0;
      while (!over || written < 20) {
        // Some of these are being deleted at this moment: they are replayed or made again, but never an error.
        const batch = [adjust(`young${written++}`, 1n, 1), old[(written * 97) % old.length]!];
        for (const { kind } of await writer.write(batch)) expect(["done", "replayed"]).toContain(kind);
        await setImmediate(); // SQLite's answers come without a turn of the event loop
      }
      await deleting;
      expect(failures.flat()).toEqual([]);
      const left = await recorded();
      expect(left.filter((id) => id.startsWith("young"))).toHaveLength(written);
      const { quantity } = (await store.get(1n))!;
      const madeAgain = left.filter((id) => id.startsWith("old")).length;
      expect(quantity).toBe(old.length + written + madeAgain);
    });
  });
});
