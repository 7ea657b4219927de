import type { ListedItem } from "../../proto/pet.ts";
import { InvariantError } from "../../runtime/invariant.ts";
import { ListFeed, type ListFeedPage } from "./list-feed.ts";
import { TooManyAtOnceError } from "./stock-errors.ts";

/** A stock of rows from 1 to `count`, a list feed of it in parts of 10, and what the feed has read. */
function stock(count: number) {
  const state = { revision: 0n, read: [] as (bigint | undefined)[] };
  const rowsAfter = async (after: bigint | undefined, limit: number) => {
    state.read.push(after);
    const { revision } = state;
    await new Promise(setImmediate);
    const from = Number(after ?? 0n) + 1;
    const length = Math.min(limit, count - from + 1);
    return Array.from({ length }, (_, i) => ({ petId: BigInt(from + i), revision }) as ListedItem);
  };
  const position = async () => ({ epoch: "e", revision: state.revision });
  return { state, rowsAfter, position, feed: new ListFeed({ position, rowsAfter }, 10) };
}

const petIdsOf = (pages: readonly ListFeedPage[]) =>
  pages.flatMap(({ rows }) => rows.map(({ petId }) => Number(petId)));
const upTo = (count: number, from = 1) => Array.from({ length: count - from + 1 }, (_, i) => from + i);
const all = (load: AsyncIterable<ListFeedPage>) => Array.fromAsync(load);

test.each([0, 9, 10, 11, 95])("a load of %i rows begins with an empty part and gives each row once", async (count) => {
  const [first, ...rest] = await all(stock(count).feed.load(undefined));
  expect(first).toEqual({ position: { epoch: "e", revision: 0n }, rows: [] });
  expect(petIdsOf(rest)).toEqual(upTo(count));
});

test.each([
  ["an entry twice", [1n, 1n]],
  ["entries out of order", [2n, 1n]],
  ["an entry that came before", [0n]],
])("a load that reads %s ends with an error", async (_, petIds) => {
  const { position } = stock(0);
  const rowsAfter = async () => petIds.map((petId) => ({ petId }) as ListedItem);
  await expect(all(new ListFeed({ position, rowsAfter }, 10).load(0n))).rejects.toThrow(InvariantError);
});

test("a load that goes on after a petId gives only what follows, with a position of its own", async () => {
  const { state, feed } = stock(95);
  state.revision = 7n;
  const pages = await all(feed.load(42n));
  expect(petIdsOf(pages)).toEqual(upTo(95, 43));
  expect(pages[0]!.position.revision).toBe(7n);
});

test("at most 200 lists are sent at once, and each that ends makes room for another one", async () => {
  const { feed } = stock(95);
  const begun = await Promise.all(
    Array.from({ length: 200 }, async () => {
      const load = feed.load(undefined);
      await load.next();
      return load;
    }),
  );
  await expect(feed.load(undefined).next()).rejects.toThrow(TooManyAtOnceError);
  await begun[0]!.return(undefined);
  expect(await feed.load(undefined).next()).toMatchObject({ done: false });
});

test("loads that begin together read each part once", async () => {
  const { state, feed } = stock(1_000);
  for (const pages of await Promise.all(Array.from({ length: 8 }, () => all(feed.load(undefined))))) {
    expect(petIdsOf(pages)).toEqual(upTo(1_000));
  }
  expect(state.read.length).toBeLessThan(1.2 * 101);
});

test("a load that begins later reads what was read before it by itself, and shares the rest", async () => {
  const { state, feed } = stock(400);
  const first = feed.load(undefined);
  for (let part = 0; part <= 10; part++) await first.next();
  state.revision = 5n;
  const second = feed.load(undefined);
  const [{ value: head }] = [await second.next()];
  expect(head).toMatchObject({ position: { revision: 5n } });
  await Promise.all([all(first), all(second)]).then(([, pages]) => {
    expect(petIdsOf(pages)).toEqual(upTo(400));
    for (const { rows } of pages) for (const { revision } of rows) expect(revision).toBe(5n);
  });
  expect(state.read.filter((after) => after === undefined)).toHaveLength(2);
  expect(state.read.filter((after) => after !== undefined && after >= 250n)).toHaveLength(16);
});

test("a load that stands still holds up no other one, and the parts kept for it are bounded", async () => {
  const { state, feed } = stock(2_000);
  const slow = feed.load(undefined);
  await slow.next();
  await slow.next();
  expect(petIdsOf(await all(feed.load(undefined)))).toEqual(upTo(2_000));
  const before = state.read.length;
  expect(petIdsOf(await all(slow))).toEqual(upTo(2_000, 11));
  expect(state.read.length - before).toBeGreaterThan(200 - 64);
});

test("a load takes nothing that was read before it began", async () => {
  const { state, feed } = stock(50);
  const given = feed.load(undefined);
  for (let part = 0; part <= 3; part++) await given.next();
  await given.return(undefined);
  await all(feed.load(undefined));
  const before = state.read.length;
  await all(feed.load(undefined));
  expect(state.read.length - before).toBe(6);
});

test("a part that cannot be read fails the loads that wait for it, and is read again later", async () => {
  const { rowsAfter, position } = stock(50);
  let isAway = true;
  const rowsUnlessAway = (after: bigint | undefined, limit: number) => {
    return isAway && after === 20n ? Promise.reject(new Error("away")) : rowsAfter(after, limit);
  };
  const feed = new ListFeed({ position, rowsAfter: rowsUnlessAway }, 10);
  const other = feed.load(30n);
  await other.next(); // keeps the feed from forgetting
  const loads = await Promise.allSettled([all(feed.load(undefined)), all(feed.load(undefined))]);
  expect(loads.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  isAway = false;
  expect(petIdsOf(await all(feed.load(20n)))).toEqual(upTo(50, 21));
  await other.return(undefined);
});
