import { applyDifference, readDifference } from "../../../test/support/difference.ts";
import { PlainStock } from "../../../test/support/plain-stock.ts";
import { Removals } from "./removals.ts";
import { StockList } from "./stock-list.ts";

test("a removal that is known already is not kept a second time when older ones are added", () => {
  let looks = 0;
  const removal = (revision: bigint) => ({
    petId: revision,
    get revision() {
      looks += 1;
      return revision;
    },
  });
  const removals = new Removals(10n);
  removals.add([removal(11n), removal(12n)], 12n, () => 1_000);
  for (const from of [9n, 8n, 7n]) removals.addOlder(from, [removal(from + 1n), removal(11n), removal(12n)]);
  expect(removals.from).toBe(7n); // so they are not asked for again
  looks = 0;
  expect(removals.after(0n)).toEqual(new Set([8n, 9n, 10n, 11n, 12n]));
  expect(looks).toBe(5);
});

test("a difference is exact when a removed entry is made again while older removals are asked for", async () => {
  const stock = new PlainStock();
  for (const petId of [1n, 2n, 3n]) stock.set(petId, 1);
  const [since, before] = [stock.revision, stock.json()];
  stock.remove(3n);
  const list = new StockList(stock, 60_000);
  const lists = new Map([[(await list.current()).etag, stock.json()]]);
  const difference = async () => {
    const tag = { epoch: (await list.current()).etag.slice(1, 9), revision: since };
    const { text } = await list.changesSince(tag, performance.now());
    return readDifference(text!);
  };

  const [asked, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const { removedAfter } = stock;
  stock.removedAfter = async (...args) => {
    asked.resolve();
    await answer.promise;
    return await removedAfter.apply(stock, args);
  };
  const first = difference();
  await asked.promise;

  const checked = Promise.withResolvers<void>();
  const arrived = new Promise<void>((resolve) => {
    stock.after = () => {
      stock.after = async () => {};
      resolve();
      return checked.promise;
    };
  });
  const second = difference();
  await arrived; // the check of the second reader has read the stock, and its answer is on its way
  stock.set(3n, 7);
  lists.set(`"epoch-of-${stock.revision}"`, stock.json());
  answer.resolve();
  await new Promise(setImmediate);
  checked.resolve();
  for (const found of await Promise.all([first, second])) {
    expect(applyDifference(before, found)).toBe(lists.get(found.etag));
  }
});
