import { setImmediate as nextTurn } from "node:timers/promises";
import { usedBytes } from "../../../test/support/garbage.ts";
import { ServingQueue } from "./serving-queue.ts";
import { type Body, bodyOf, bodyOfText } from "./snapshot.ts";

const reader = (accountId: string, hasLeft = () => false) => ({ accountId, hasLeft });

/** Asks for one body with many readers. @returns how many of them each turn of the event loop served, or refused */
async function servedByTurn(readers: number, make: () => Promise<Body>, sinceMs = performance.now()) {
  const queue = new ServingQueue<Body>(1_000);
  const byTurn = new Map<number, number>();
  let turn = 0;
  const note = () => void byTurn.set(turn, (byTurn.get(turn) ?? 0) + 1);
  const served = Array.from({ length: readers }, () =>
    queue.serve("a", reader("acme"), sinceMs, make).then(note, note),
  );
  let isOver = false;
  void Promise.all(served).then(() => {
    isOver = true;
  });
  for (; !isOver; turn++) await nextTurn();
  return [...byTurn.values()];
}

test.each([
  ["a small body", [256, 256, 88], async () => bodyOfText("x".repeat(60))],
  ["a body of 30 KiB", [3, 3, 3, 1], async () => bodyOf([Buffer.alloc(30 * 1024)])],
  ["a body of a megabyte", [1, 1, 1], async () => bodyOf([Buffer.alloc(1024 * 1024)])],
  ["an error", [256, 256, 88], () => Promise.reject(new Error("made by the test"))],
])("many readers who wait for %s get it over several turns", async (_what, expected, make) => {
  const readers = expected.reduce((sum, count) => sum + count);
  expect(await servedByTurn(readers, make)).toEqual(expected);
});

test("readers who waited for too long are refused over several turns, and nothing is made", async () => {
  const make = () => Promise.reject(new Error("made for nobody"));
  expect(await servedByTurn(600, make, performance.now() - 1_001)).toEqual([256, 256, 88]);
});

test("accounts take turns, so that many bodies of one do not hold up one of another", async () => {
  const queue = new ServingQueue<Body>(1_000);
  const made: string[] = [];
  const ask = (accountId: string, name: string) =>
    queue.serve(name, reader(accountId), performance.now(), async () => {
      made.push(name);
      return bodyOfText(name);
    });
  const asked = ["a", "b", "c", "d"].map((name) => ask("acme", name));
  for (const name of ["a", "b", "e", "f"]) asked.push(ask("umbrella", name)); // it shares two of them
  await Promise.all(asked);
  expect(made).toEqual(["a", "b", "c", "e", "d", "f"]);
});

test("a body whose readers have all left before its turn is not made", async () => {
  const queue = new ServingQueue<Body>(1_000);
  const made: string[] = [];
  const left = new Set<string>();
  const ask = (name: string, client: string) => {
    const hasLeft = () => left.has(client);
    return queue.serve(name, reader(client, hasLeft), performance.now(), async () => {
      made.push(name);
      return bodyOfText(name);
    });
  };
  void ask("alone", "gone");
  void ask("shared", "gone");
  const shared = ask("shared", "patient");
  const last = ask("last", "patient");
  left.add("gone");
  expect([(await shared).text, (await last).text]).toEqual(["shared", "last"]);
  expect(made).toEqual(["shared", "last"]);
});

test("nothing of a body is kept once its readers have it, however many accounts waited", async () => {
  const queue = new ServingQueue<Body>(60_000);
  const round = async (name: string) => {
    const ask = (account: number) =>
      queue.serve(name, reader(`account ${account}`), performance.now(), async () => bodyOfText("a"));
    await Promise.all(Array.from({ length: 100 }, (_, account) => ask(account)));
  };
  await round("first");
  const beforeBytes = usedBytes();
  const nameBytes = 20_000;
  for (let i = 0; i < 200; i++) await round(String(i).padEnd(nameBytes));
  expect(usedBytes() - beforeBytes).toBeLessThan(20 * nameBytes);
});
