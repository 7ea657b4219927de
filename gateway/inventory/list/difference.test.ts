import { setImmediate as nextTurn } from "node:timers/promises";
import fc from "fast-check";
import { applyDifference, type Difference, readDifference } from "../../../test/support/list-difference.ts";
import { PlainStock } from "../../../test/support/plain-stock.ts";
import { type Chunk, makeChunk } from "./chunk.ts";
import { findEntry } from "./chunks.ts";
import { findDifference } from "./difference.ts";
import type { Body, Snapshot } from "./snapshot.ts";
import { StockList } from "./stock-list.ts";

const timeoutMs = 60_000;
const reader = { accountId: "acme", hasLeft: () => false };

async function changesSince(list: StockList, etag: string): Promise<Difference> {
  const [epochTag, revision] = [etag.slice(1, 9), BigInt(etag.slice(10, -1))];
  await list.readFresh();
  const body = await list.changesSince({ epochTag, revision }, reader);
  const text = textOf(body);
  expect(Buffer.byteLength(text)).toBe(body.length);
  return readDifference(text);
}

const textOf = ({ pieces, text }: Body) => text ?? Buffer.concat(pieces).toString();

/** A stock of entries from 0 on, and its list. */
function stockOf(count: number) {
  const stock = new PlainStock();
  for (let i = 0; i < count; i++) stock.set(BigInt(i), i);
  return { stock, list: new StockList(stock, timeoutMs) };
}

test("the list of any ETag and the difference since then give the list of the answer's ETag", async () => {
  const petId = fc.oneof(
    fc.bigInt({ min: -5n, max: 30n }),
    fc.constantFrom(2n ** 63n - 1n, -(2n ** 63n), 2n ** 53n + 1n),
  );
  const kind = fc.constantFrom("set", "set", "set", "set", "remove", "remove", "forget");
  const change = fc.record({ kind, petId, quantity: fc.nat(2_147_483_647) });
  const step = fc.record({ changes: fc.array(change, { maxLength: 12 }), reader: fc.nat(2), asked: fc.nat() });
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(0, 20, 700), fc.array(step, { maxLength: 20 }), async (seeded, steps) => {
      const { stock } = stockOf(seeded);
      // Each begins with its first read, so that some are younger than the ETags that they get.
      const gateways = Array.from({ length: 3 }, () => new StockList(stock, timeoutMs));
      const lists = new Map<string, string>();
      for (const { changes, reader, asked } of steps) {
        for (const { kind, petId: id, quantity } of changes) {
          if (kind === "set") stock.set(id, quantity);
          else if (kind === "remove") stock.remove(id);
          else stock.forget(stock.floor + (BigInt(quantity) % (stock.revision - stock.floor + 1n)) / 2n);
        }
        const snapshot = await gateways[reader]!.readFresh();
        lists.set(snapshot.etag, textOf(snapshot.plain()));
        const [since, before] = [...lists][asked % lists.size]!;
        const read = changesSince(gateways[(reader + asked) % 3]!, since);
        if (BigInt(since.slice(10, -1)) < stock.floor) {
          await expect(read).rejects.toMatchObject({ code: "changes_unavailable" });
          continue;
        }
        const difference = await read;
        expect(difference.etag).toBe(snapshot.etag);
        expect(applyDifference(before, difference)).toBe(stock.json());
        const expected = stock.differences(BigInt(since.slice(10, -1))).sort((a, b) => ascending(a.petId, b.petId));
        const gone = expected.filter(({ removed }) => removed);
        expect(difference.removed).toEqual(gone.map((item) => item.petId));
        expect(difference.changed).toEqual(
          expected
            .filter(({ removed }) => !removed)
            .map(
              ({ petId: id, quantity, revision }) =>
                `{"petId":${id},"quantity":${quantity},"status":"available","etag":"\\"r${revision}\\""}`,
            ),
        );
      }
    }),
    { numRuns: 200 },
  );
});

const ascending = (a: bigint, b: bigint) => (a < b ? -1 : a > b ? 1 : 0);

test("a list finds each of its entries with the revision that changed it last, and no other", async () => {
  const { stock, list } = stockOf(2_000);
  stock.set(700n, 5);
  await list.readFresh();
  for (let i = 0n; i < 2_000n; i += 3n) stock.remove(i);
  stock.set(1n, 2_000_000_000);
  stock.set(9_000n, 1);
  const { chunks } = await list.readFresh();
  for (let petId = -1n; petId < 2_001n; petId++) {
    const item = stock.items.get(petId);
    const json = item && `{"petId":${petId},"quantity":${item.quantity},"status":"available"}`;
    expect(findEntry(chunks, petId)).toEqual(item && { json, revision: item.revision });
  }
  expect(findEntry([], 1n)).toBeUndefined();
});

test("a list that is up to date forgets removed entries up to the floor, and nothing else", async () => {
  const { stock, list } = stockOf(3_000);
  await list.readFresh();
  for (let i = 0n; i < 2_000n; i++) stock.remove(i);
  const { etag, chunks } = await list.readFresh();
  expect(chunks.reduce((sum, { petIds }) => sum + petIds.length, 0)).toBe(3_000);
  stock.remove(2_000n);
  stock.forget(stock.revision - 11n);
  const after = await list.readFresh();
  expect(after.chunks.flatMap(({ petIds }) => [...petIds])).toEqual(
    Array.from({ length: 1_010 }, (_, i) => BigInt(i + 1_990)),
  );
  expect(textOf(after.plain())).toBe(stock.json());
  expect(await changesSince(list, etag)).toMatchObject({ changed: [], removed: [2_000n] });
  expect(after.chunks.at(-1)).toBe(chunks.at(-1));
  expect(stock.loads).toBe(1);
});

test("a list that is too far behind for the floor is loaded again", async () => {
  const { stock, list } = stockOf(10);
  await list.readFresh();
  stock.remove(3n);
  stock.forget(stock.revision);
  expect(textOf((await list.readFresh()).plain())).toBe(stock.json());
  expect(stock.loads).toBe(2);
});

test.each([
  ["short", 3],
  ["long", 2_000],
])("readers who wait for the same %s difference share one body, made of the newest list", async (_length, count) => {
  const { stock, list } = stockOf(count);
  const since = { epochTag: (await list.readFresh()).etag.slice(1, 9), revision: stock.revision };
  for (let i = 0; i < count; i++) stock.set(BigInt(i), 1_000);
  await list.readFresh();
  const [first, ...others] = await Promise.all(Array.from({ length: 5 }, () => list.changesSince(since, reader)));
  for (const body of others) expect(body).toBe(first);
  stock.set(9_999n, 2_000);
  await list.readFresh();
  const later = readDifference(textOf(await list.changesSince(since, reader)));
  expect(later.changed).toHaveLength(count + 1);
});

describe("changes_unavailable", () => {
  const gone = { code: "changes_unavailable", status: 410 };

  test("an ETag of another epoch, or one of the future, gets changes_unavailable", async () => {
    const { list } = stockOf(10);
    await expect(changesSince(list, '"another1-1"')).rejects.toMatchObject(gone);
    await expect(changesSince(list, '"epoch-of-11"')).rejects.toMatchObject(gone);
    expect(await changesSince(list, '"epoch-of-10"')).toMatchObject({ changed: [], removed: [] });
  });

  test("an ETag below the floor gets changes_unavailable, also where nothing else has changed", async () => {
    const { stock, list } = stockOf(10);
    const { etag: before } = await list.readFresh();
    stock.remove(3n);
    const { etag } = await list.readFresh();
    expect(await changesSince(list, before)).toMatchObject({ removed: [3n] });
    stock.forget(stock.revision);
    await expect(changesSince(list, before)).rejects.toMatchObject(gone);
    expect(await changesSince(list, etag)).toMatchObject({ changed: [], removed: [] });
  });

  test("an ETag from before a restore of the stock gets changes_unavailable", async () => {
    const { stock, list } = stockOf(10);
    const { etag } = await list.readFresh();
    stock.epoch = "restored-stock";
    await expect(changesSince(list, etag)).rejects.toMatchObject(gone);
  });

  test.each([
    [1, 1_000],
    [3_000, 3_000],
  ])(
    "is the answer to more than max(1,000, entries) differences: a stock of %i entries with %i",
    async (entries, max) => {
      const { stock, list } = stockOf(entries);
      const { etag } = await list.readFresh();
      const young = new StockList(stock, timeoutMs);
      for (let i = 0; i < max; i++) {
        stock.set(BigInt(entries + i), 1);
        stock.remove(BigInt(entries + i));
      }
      for (const each of [list, young]) expect((await changesSince(each, etag)).removed).toHaveLength(max);
      stock.set(0n, 5);
      for (const each of [list, young]) await expect(changesSince(each, etag)).rejects.toMatchObject(gone);
    },
  );
});

test("a difference of hundreds of entries is in bytes that count as held, and one of ten is text", async () => {
  for (const [count, isText] of [
    [10, true],
    [300, false],
  ] as const) {
    const { stock, list } = stockOf(count);
    const [epochTag, revision] = [(await list.readFresh()).etag.slice(1, 9), stock.revision];
    for (let i = 0; i < count; i++) stock.set(BigInt(i), 7);
    await list.readFresh();
    const { text, pieces, length } = await list.changesSince({ epochTag, revision }, reader);
    expect(text !== undefined).toBe(isText);
    expect(Buffer.concat(pieces)).toHaveLength(isText ? 0 : length);
  }
});

test("of many readers who ask at once, few get their short difference in one turn", async () => {
  const { stock, list } = stockOf(1_000);
  const [epochTag, revision] = [(await list.readFresh()).etag.slice(1, 9), stock.revision];
  for (let i = 0n; i < 1_000n; i++) stock.set(i, 7);
  await list.readFresh();
  using turns = new TurnCounter();
  const bytesByTurn = new Map<number, number>();
  const reads = Array.from({ length: 200 }, async (_, i) => {
    const [first, second] = [revision + 600n, revision + 700n];
    const { length } = await list.changesSince({ epochTag, revision: i % 2 === 0 ? first : second }, reader);
    bytesByTurn.set(turns.count, (bytesByTurn.get(turns.count) ?? 0) + length);
    return length;
  });
  const lengths = await Promise.all(reads);
  expect(Math.max(...bytesByTurn.values())).toBeLessThan(64 * 1024 + Math.max(...lengths));
});

test("of many readers who ask at once, no two have their too many changes searched in one turn", async () => {
  const { stock, list } = stockOf(10);
  const [epochTag, revision] = [(await list.readFresh()).etag.slice(1, 9), stock.revision];
  for (let i = 0n; i < 1_200n; i++) stock.set(i % 10n, 7);
  for (let i = 100n; i < 1_200n; i++) stock.set(i, 7);
  for (let i = 100n; i < 1_200n; i++) stock.remove(i);
  await list.readFresh();
  using turns = new TurnCounter();
  const reads = Array.from({ length: 50 }, async (_, i) => {
    await expect(list.changesSince({ epochTag, revision: revision + BigInt(i) }, reader)).rejects.toThrow("too many");
    return turns.count;
  });
  expect(new Set(await Promise.all(reads)).size).toBe(50);
});

test("long differences that many readers ask for at once are rendered one after the other", async () => {
  const { stock, list } = stockOf(40_000);
  const [epochTag, revision] = [(await list.readFresh()).etag.slice(1, 9), stock.revision];
  for (let i = 0n; i < 40_000n; i++) stock.set(i, 2_000_000_000);
  await list.readFresh();
  const { arrayBuffers: before } = process.memoryUsage();
  let rendered = 0;
  const reads = Array.from({ length: 30 }, async (_, i) => {
    const { length } = await list.changesSince({ epochTag, revision: revision + BigInt(i) }, reader);
    rendered += 1;
    if (rendered === 1) expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(4 * length);
  });
  expect((await list.changesSince({ epochTag, revision: revision + 39_990n }, reader)).length).toBeLessThan(1_000);
  expect(rendered).toBe(0); // a short difference waits for no long one
  await Promise.all(reads);
});

test("a search for a short difference ends where it has found too many changes", async () => {
  const { stock, list } = stockOf(20_000);
  const { revision } = stock;
  for (let i = 0n; i < 20_000n; i++) stock.set(i, 7);
  const { etag, revision: now, chunks } = await list.readFresh();
  const seen = new Set<Chunk>();
  const watched = chunks.map((chunk) => ({
    ...chunk,
    get revisions() {
      seen.add(chunk);
      return chunk.revisions;
    },
  }));
  const watchedList = { etag, revision: now, chunks: watched } as unknown as Snapshot;
  expect(await findDifference(watchedList, revision, 1_000)).toBe(undefined);
  expect([...seen].reduce((sum, { liveCount }) => sum + liveCount, 0)).toBeLessThan(2_000);
});

test.each([
  ["short", 600, 1],
  ["long", 2_000, 4],
])("a reader of a %s difference whose turn comes too late gets a timeout", async (_length, count, turnsToFirst) => {
  const { stock } = stockOf(count);
  const list = new StockList(stock, 1_000);
  const [epochTag, revision] = [(await list.readFresh()).etag.slice(1, 9), stock.revision];
  for (let i = 0; i < count; i++) stock.set(BigInt(i), 7);
  await list.readFresh();
  const [first, second] = [0n, 1n].map((i) => list.changesSince({ epochTag, revision: revision + i }, reader));
  const refused = expect(second).rejects.toMatchObject({ code: "timeout" });
  for (let turn = 0; turn < turnsToFirst; turn++) await nextTurn();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_100);
  expect((await first!).length).toBeGreaterThan(count * 50);
  await refused;
});

test("a search in many chunks leaves turns to others", async () => {
  const chunk = makeChunk([{ petId: 1n, quantity: 1, status: "available", revision: 2n, removed: false }]);
  const long = { etag: "", revision: 2n, chunks: Array(4_000).fill(chunk) } as unknown as Snapshot;
  using turns = new TurnCounter();
  expect((await findDifference(long, 1n, 4_000))?.changedChunks).toHaveLength(4_000);
  expect(turns.count).toBeGreaterThan(10);
});

test("a difference with many removals leaves turns to others while it is rendered", async () => {
  const { stock, list } = stockOf(60_000);
  const { etag } = await list.readFresh();
  for (let i = 0n; i < 25_000n; i++) stock.remove(i);
  using turns = new TurnCounter();
  const { removed } = await changesSince(list, etag);
  expect(removed).toEqual(Array.from({ length: 25_000 }, (_, i) => BigInt(i)));
  expect(turns.count).toBeGreaterThan(3);
});

test("a difference with an entry in every chunk leaves turns to others while it is rendered", async () => {
  const { stock, list } = stockOf(20_000);
  const { etag } = await list.readFresh();
  for (let i = 0n; i < 20_000n; i++) stock.set(i, 7);
  using turns = new TurnCounter();
  const { changed } = await changesSince(list, etag);
  expect(changed).toHaveLength(20_000);
  expect(turns.count).toBeGreaterThan(5);
});

/** Counts turns of the event loop. */
class TurnCounter implements Disposable {
  count = 0;
  #timer = setImmediate(() => this.#onTurn());

  #onTurn(): void {
    this.count += 1;
    this.#timer = setImmediate(() => this.#onTurn());
  }

  [Symbol.dispose](): void {
    clearImmediate(this.#timer);
  }
}
