import { suiteStock } from "../../test/support/open-stock.ts";
import { TooManyAtOnceError } from "./stock-errors.ts";
import { StockHistory } from "./stock-history.ts";

describe("the history of the stock", () => {
  const { db, store } = suiteStock();

  test("reads of histories wait for each other, and more than a hundred that wait are refused", async () => {
    await store.write([{ kind: "create", petId: 1n, quantity: 1, status: "available" }]);
    const history = new StockHistory(db);
    const reads = Array.from({ length: 110 }, () => history.before(undefined, 1n, 10));
    const settled = await Promise.allSettled(reads);
    const refused = settled.filter((each) => each.status === "rejected");
    expect(refused.map(({ reason }) => reason.constructor)).toEqual(Array(8).fill(TooManyAtOnceError));
    expect(await history.before(undefined, 1n, 10)).toMatchObject([{ petId: 1n, kind: "create" }]);
  });

  test("an entry is known while it is there, and while a change of it is kept", async () => {
    const history = new StockHistory(db);
    for (const petId of [1n, 2n]) await store.write([{ kind: "create", petId, quantity: 1, status: "available" }]);
    await store.write([{ kind: "remove", petId: 2n }]);
    const known = async () => [await history.has(1n), await history.has(2n), await history.has(3n)];
    expect(await known()).toEqual([true, true, false]);
    await db("stock_ledger").delete();
    expect(await known()).toEqual([true, false, false]);
  });
});
