import { setImmediate } from "node:timers/promises";
import { ledgerKeptMsOf, removalsKeptMs, startCleanup } from "../../inventory-svc/stock/cleanup.ts";
import { Retention } from "../../inventory-svc/stock/retention.ts";
import type { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import type { Item, ListedItem, Position } from "../../proto/pet.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { type OpenStock, openMigratedStock, openStock, pagesOf, untilRunning } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import { adjust, create, remove, update } from "../support/stock-changes.ts";

const petIdOf = ({ petId }: Item) => petId;
const hourMs = 3_600_000;

/**
 * Reads all changes after a position in pages of `limit`; of two states, the later counts.
 *
 * @returns undefined for a reset
 */
async function changesAfter(store: StockStore, from: Position, limit = 1_000) {
  const latest = new Map<bigint, ListedItem>();
  for (let position = from; ; ) {
    const page = await store.changesAfter(position, limit);
    if (page.kind === "reset") return undefined;
    for (const row of page.rows) latest.set(row.petId, row);
    ({ position } = page);
    if (page.more) continue;
    const ids = (removed: boolean) => [...latest.values()].filter((row) => row.removed === removed).map(petIdOf);
    return { changed: ids(false), removed: ids(true), position, floor: page.floor };
  }
}

describeEachDatabase("removals that are forgotten", (url) => {
  const stack = suiteStack();
  let stock: OpenStock;
  let store: StockStore;
  let start: Position;

  beforeAll(async () => {
    stock = await openMigratedStock(stack, url());
    ({ store } = stock);
  });
  beforeEach(async () => {
    await stock.empty();
    start = await store.position();
  });

  /** Notes the time, and has all notes be older. */
  async function noteAndAge(byMs: number): Promise<void> {
    await stock.retention.noteTime(0);
    await stock.db("stock_times").decrement("noted_at", byMs);
  }
  const forget = async (limit = 500) => {
    while (await stock.retention.forgetRemovals(removalsKeptMs, limit));
  };
  const tombstones = async () => await stock.db("stock").where("removed", 1).orderBy("revision").pluck("pet_id");
  const at = (revision: bigint) => ({ ...start, revision });

  test("a removal is forgotten 30 days after it, and not before, by the clock of the database", async () => {
    await store.write([create(1n), create(2n), create(3n), remove(1n)]);
    await noteAndAge(2 * hourMs);
    await store.write([remove(2n)]);
    await noteAndAge(removalsKeptMs - hourMs);
    await store.write([remove(3n)]);
    await noteAndAge(0);
    await forget();
    expect(await tombstones()).toEqual([2n, 3n]);
    expect(removalsKeptMs).toBe(30 * 24 * hourMs);
    await noteAndAge(2 * hourMs);
    await forget();
    expect(await tombstones()).toEqual([3n]);
  });

  test("a position at the floor or above gets complete changes, and one below it gets a reset", async () => {
    await store.write([create(1n), create(2n), create(3n), create(4n), remove(1n), update(4n, 5), remove(2n)]);
    await noteAndAge(removalsKeptMs + hourMs);
    await store.write([remove(3n)]);
    expect(await changesAfter(store, at(4n))).toMatchObject({ changed: [4n], removed: [1n, 2n, 3n], floor: 0n });
    await forget();
    for (const revision of [0n, 4n, 6n]) expect(await changesAfter(store, at(revision))).toBeUndefined();
    expect(await changesAfter(store, at(7n))).toMatchObject({ changed: [], removed: [3n], floor: 7n });
    expect(await changesAfter(store, at(8n))).toMatchObject({ changed: [], removed: [], floor: 7n });
    expect((await store.rowsAfter(undefined, 10)).map(({ petId }) => petId)).toEqual([3n, 4n]);
  });

  test("removals are forgotten in steps of a bounded number of rows, each with its floor", async () => {
    await store.write([1n, 2n, 3n, 4n, 5n].map(create));
    await store.write([remove(2n), remove(4n), create(2n)]);
    await noteAndAge(removalsKeptMs + hourMs);
    const floors = [];
    for (let more = true; more; ) {
      more = await stock.retention.forgetRemovals(removalsKeptMs, 2);
      floors.push((await stock.db("stock_head").first("floor")).floor);
    }
    expect(floors).toEqual([3n, 7n, 8n]); // rows at 1, 3, 5, 7, 8
    expect(await tombstones()).toEqual([]);
    expect(await stock.db("stock_times")).toEqual([]);
    expect(await stock.retention.forgetRemovals(removalsKeptMs, 2)).toBe(false);
  });

  test("an entry that is made and removed again while removals are forgotten keeps its tombstone", async () => {
    if (url().startsWith("sqlite:")) return; // its only connection lets nothing happen between two statements
    await store.write([create(1n), create(2n), remove(1n), remove(2n)]);
    await noteAndAge(removalsKeptMs + hourMs);
    const writer = await connectMysql(url());
    await writer.query("BEGIN");
    await writer.query("UPDATE stock_head SET revision = 6");
    const forgetting = forget();
    await untilRunning(url(), "update");
    await writer.query("UPDATE stock SET revision = 6 WHERE pet_id = 1");
    await writer.query("COMMIT");
    await writer.end();
    await forgetting;
    expect(await tombstones()).toEqual([1n]);
    expect(await changesAfter(store, at(4n))).toMatchObject({ removed: [1n], floor: 4n });
  });

  test("the time is noted once in an interval, also beside a note of a clock that was wrong", async () => {
    await store.write([create(1n)]);
    const notes = async () => (await stock.db("stock_times").pluck("revision")) as bigint[];
    for (let i = 0; i < 3; i++) await stock.retention.noteTime(hourMs);
    expect(await notes()).toEqual([1n]);
    await stock.db("stock_times").increment("noted_at", removalsKeptMs);
    for (let i = 0; i < 3; i++) await stock.retention.noteTime(hourMs);
    expect(await notes()).toEqual([1n, 1n]);
  });

  test("a note that a clock far behind has made takes no removal for an old one", async () => {
    await store.write([create(1n), create(2n), remove(2n)]);
    await noteAndAge(removalsKeptMs);
    await store.write([create(3n)]);
    await noteAndAge(hourMs);
    await store.write([remove(1n)]);
    await stock.retention.noteTime(0);
    const notedAtMs = Date.now() - 2 * removalsKeptMs;
    await stock.db("stock_times").where("revision", 5).update({ noted_at: notedAtMs });
    for (const _cleanUp of [1, 2]) await forget();
    expect(await tombstones()).toEqual([1n]);
    expect(await changesAfter(store, at(4n))).toMatchObject({ removed: [1n], floor: 3n });
  });

  /** Turns the clock on, by what notes and changes say, while services run or while none does. */
  const goOn = async (hours: number, isRunning: boolean) => {
    for (let hour = 0; hour < hours; hour += isRunning ? 1 : hours) {
      const byMs = isRunning ? hourMs + 1 : hours * hourMs;
      await stock.db("stock_times").decrement("noted_at", byMs);
      await stock.db("stock_ledger").decrement("made_at", byMs);
      if (isRunning) await stock.retention.noteTime(hourMs);
    }
  };
  /** Cleans up once. @returns whether it waits */
  const cleanUp = async (historyDays: number) => {
    let waits = false;
    const onError = (error: unknown) => expect(error).toBeUndefined();
    const onWait = () => {
      waits = true;
    };
    const ended = Promise.withResolvers<void>();
    const retention = new (class extends Retention {
      override async hasGap(gapMs: number, agoMs: number) {
        const hasGap = await super.hasGap(gapMs, agoMs);
        if (hasGap) ended.resolve();
        return hasGap;
      }
      override async forgetRemovals(ageMs: number, limit: number) {
        const more = await super.forgetRemovals(ageMs, limit);
        if (!more) ended.resolve();
        return more;
      }
    })(stock.db);
    const stop = startCleanup({ retention, ledgerKeptMs: ledgerKeptMsOf(historyDays), onError, onWait });
    await ended.promise;
    await stop();
    return waits;
  };

  test("nothing old is deleted for 8 hours after the clock was set forward, and then it is", async () => {
    await store.write([create(1n), remove(1n)]);
    const kept = async () => [...(await stock.db("stock_ledger").pluck("id")), ...(await tombstones())];
    expect(await cleanUp(30)).toBe(false); // a new stock
    await goOn(3, true);
    expect(await cleanUp(30)).toBe(false);
    await goOn(40 * 24, false);
    expect(await cleanUp(30)).toBe(true);
    await goOn(7, true);
    expect(await cleanUp(30)).toBe(true);
    expect(await kept()).toEqual([1n, 2n, 1n]);
    await goOn(2, true);
    expect(await cleanUp(30)).toBe(false);
    expect(await kept()).toEqual([]);
  });

  test("a repeat is known for 24 hours, also when a clock is set forward by less than 2 hours", async () => {
    await store.write([create(1n), adjust("order-1", 1n, 1)]);
    await stock.retention.noteTime(0);
    await goOn(23, true);
    await goOn(1.9, false);
    await stock.retention.noteTime(hourMs);
    await goOn(0.9, false);
    expect(await cleanUp(0)).toBe(false);
    expect(await store.write([adjust("order-1", 1n, 1)])).toMatchObject([{ kind: "replayed" }]);
  });

  test("readers of changes get every removal or a reset while services forget and writers write", async () => {
    const isSqlite = url().startsWith("sqlite:");
    const others = isSqlite ? [stock, stock] : [openStock(url()), openStock(url())];
    for (const each of new Set(others)) if (each !== stock) stack.defer(() => each.close());
    let [over, turn, resets, reads] = [false, 0, 0, 0];
    const writing = (async () => {
      for (; turn < 120; turn++) {
        const petIds = Array.from({ length: 20 }, (_, i) => BigInt((turn * 7 + i * 3) % 100));
        await store.write(petIds.map((petId, i) => (i % 2 === 0 ? create(petId) : remove(petId))));
        if (turn % 10 === 0) await noteAndAge(removalsKeptMs + hourMs);
        await setImmediate();
      }
      over = true;
    })();
    const forgetting = others.map(async ({ retention }) => {
      while (!over) {
        await retention.forgetRemovals(removalsKeptMs, 15);
        await setImmediate();
      }
    });
    const reading = [0, 30].map(async (turnsBehind) => {
      let known = new Set<bigint>();
      let position: Position | undefined;
      const load = async () => {
        resets += 1;
        position = await store.position();
        known = new Set((await Array.fromAsync(pagesOf(store, 30))).flat().map(petIdOf));
      };
      for (let isLast = false; ; ) {
        isLast = over;
        if (!position) await load();
        const changes = await changesAfter(store, position!, 30);
        reads += 1;
        position = changes?.position;
        for (const petId of changes?.removed ?? []) known.delete(petId);
        for (const petId of changes?.changed ?? []) known.add(petId);
        if (isLast && changes) break;
        for (const before = turn; !over && turn <= before + turnsBehind; ) await setImmediate();
      }
      return known;
    });
    await Promise.all([writing, ...forgetting]);
    const entries = (await Array.fromAsync(pagesOf(store, 1_000))).flat().map(petIdOf);
    for (const known of await Promise.all(reading)) {
      expect([...known].sort((a, b) => (a < b ? -1 : 1))).toEqual(entries);
    }
    expect(reads).toBeGreaterThan(resets);
    expect(resets).toBeGreaterThan(2);
  }, 60_000);
});
