import { suiteStock } from "../../test/support/open-stock.ts";
import { StockStore } from "../stock/stock-store.ts";
import { readWholeStock } from "./whole-stock.ts";

const pageSize = 2;
const { db } = suiteStock();

/** A store with the entries 1 to 6, which makes changes of others after each page of the list. */
async function changingStore(...changes: readonly (() => Promise<unknown>)[]) {
  const store = new StockStore(db);
  const entries = [1n, 2n, 3n, 4n, 5n, 6n].map((petId) => ({ petId, quantity: 10, status: "available" as const }));
  await store.write(entries.map((entry) => ({ kind: "create", ...entry })));
  const left = [...changes];
  return {
    position: () => store.position(),
    changesAfter: store.changesAfter.bind(store),
    rowsAfter: async (after: bigint | undefined, limit: number) => {
      const rows = await store.rowsAfter(after, limit);
      await left.shift()?.();
      return rows;
    },
  };
}

test("an export has all entries as they were at one moment, whatever changes while it reads", async () => {
  const others = new StockStore(db);
  const adjust = (petId: bigint, delta: number, id: string) =>
    ({ kind: "adjust", petId, delta, once: { id, fingerprint: "1" } }) as const;
  const store = await changingStore(
    () =>
      others.write([
        adjust(1n, -5, "a"),
        adjust(6n, 5, "b"),
        { kind: "remove", petId: 2n },
        { kind: "create", petId: -1n, quantity: 0, status: "sold" },
      ]),
    () => others.write([adjust(3n, 5, "c"), adjust(5n, -5, "d")]),
  );
  const found = await readWholeStock(store, pageSize, () => {});
  expect(found.map(({ petId, quantity }) => [petId, quantity])).toEqual([
    [-1n, 0],
    [1n, 5],
    [3n, 15],
    [4n, 10],
    [5n, 5],
    [6n, 15],
  ]);
});

test("an export ends with an error when another epoch begins while it reads", async () => {
  const store = await changingStore(() => new StockStore(db).beginEpoch());
  await expect(readWholeStock(store, pageSize, () => {})).rejects.toThrow("another epoch of the stock began");
});
