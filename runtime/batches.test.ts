import { setImmediate } from "node:timers/promises";
import { Batches } from "./batches.ts";

/** Batches whose work ends when the test says so. */
function open(limit?: number, gather?: () => Promise<unknown>) {
  const batches: { readonly items: readonly string[]; readonly end: () => void }[] = [];
  const work = new Batches<string>(async (take) => {
    const { promise, resolve: end } = Promise.withResolvers<void>();
    batches.push({ items: take(limit), end });
    await promise;
  }, gather);
  return { batches, work };
}

test("items that arrive together share the first batch", async () => {
  const { batches, work } = open();
  work.add("a");
  work.add("b");
  await setImmediate();
  expect(batches.map(({ items }) => items)).toEqual([["a", "b"]]);
  expect(work.waiting).toEqual([]);
});

test("an item that arrives while a batch is under way waits for the next one", async () => {
  const { batches, work } = open();
  work.add("a");
  await setImmediate();
  work.add("b");
  work.add("c");
  await setImmediate();
  expect(batches).toHaveLength(1);
  expect(work.waiting).toHaveLength(2);
  batches[0]!.end();
  await setImmediate();
  expect(batches[1]!.items).toEqual(["b", "c"]);
});

test("a batch that takes only some items leaves the newer ones to the next batch", async () => {
  const { batches, work } = open(2);
  for (const item of ["a", "b", "c"]) work.add(item);
  await setImmediate();
  batches[0]!.end();
  await setImmediate();
  expect(batches.map(({ items }) => items)).toEqual([["a", "b"], ["c"]]);
});

test("idle resolves after the last batch and not before", async () => {
  const { batches, work } = open(1);
  let isIdle = false;
  work.add("a");
  work.add("b");
  const idle = work.idle().then(() => {
    isIdle = true;
  });
  await setImmediate();
  batches[0]!.end();
  await setImmediate();
  expect(isIdle).toBe(false);
  batches[1]!.end();
  await idle;
});

test("an item that arrives after an idle time begins a batch again", async () => {
  const { batches, work } = open();
  work.add("a");
  await setImmediate();
  batches[0]!.end();
  await work.idle();
  work.add("b");
  await setImmediate();
  expect(batches[1]!.items).toEqual(["b"]);
});

test("the first batch waits for the end of gathering", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { batches, work } = open(undefined, () => promise);
  work.add("a");
  await setImmediate();
  work.add("b");
  expect(batches).toHaveLength(0);
  resolve();
  await setImmediate();
  expect(batches[0]!.items).toEqual(["a", "b"]);
});
