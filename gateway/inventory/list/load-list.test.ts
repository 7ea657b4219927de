import type { ListedItem } from "../../../proto/pet.ts";
import { PlainStock } from "../../../test/support/plain-stock.ts";
import { StockList } from "./stock-list.ts";

const timeoutMs = 60_000;

/** A stock of 3,000 entries whose list comes in parts of 100, and whose streams break after so many of these. */
function breakingAfter(...parts: number[]) {
  const stock = new PlainStock();
  for (let petId = 0n; petId < 3_000n; petId++) stock.set(petId, 1);
  const begun: (bigint | undefined)[] = [];
  stock.load = async function* (after) {
    begun.push(after);
    const [position, left] = [{ epoch: stock.epoch, revision: stock.revision }, parts.shift() ?? 99];
    yield { position, items: [] as ListedItem[] };
    const all = stock.differences(-1n).filter(({ petId }) => after === undefined || petId > after);
    all.sort((a, b) => (a.petId < b.petId ? -1 : 1));
    for (let part = 0; part * 100 < all.length; part++) {
      if (part === left) throw new Error("the stream broke");
      yield { position, items: all.slice(part * 100, (part + 1) * 100) };
      stock.set(petIdOf(part), 7); // behind the reader and ahead of it
    }
  };
  return { stock, begun };
}

const petIdOf = (part: number) => BigInt((part * 577) % 3_000);

const jsonOf = async (list: StockList) => Buffer.concat((await list.readFresh()).plain().pieces).toString();

test("a load whose streams break goes on after its last petId, and readers get the whole list", async () => {
  const { stock, begun } = breakingAfter(3, 10, 1);
  expect(await jsonOf(new StockList(stock, timeoutMs))).toBe(stock.json());
  expect(begun).toEqual([undefined, 299n, 1_299n, 1_399n]);
});

test("a load that gets no further fails, and the next read goes on where it stood", async () => {
  const { stock, begun } = breakingAfter(3, 0);
  const list = new StockList(stock, timeoutMs);
  await expect(list.readFresh()).rejects.toThrow("the stream broke");
  stock.remove(5n);
  expect(await jsonOf(list)).toBe(stock.json());
  expect(begun).toEqual([undefined, 299n, 299n]);
});

test("a list that is loaded is not loaded a second time when the check after it fails", async () => {
  const { stock, begun } = breakingAfter();
  const list = new StockList(stock, timeoutMs);
  stock.before = async () => {
    throw new Error("away");
  };
  await expect(list.readFresh()).rejects.toThrow("away");
  stock.before = async () => {};
  expect(await jsonOf(list)).toBe(stock.json());
  expect(begun).toEqual([undefined, 2_999n]);
});

test("a load that goes on in another epoch begins again, so that no list is of two stocks", async () => {
  const { stock } = breakingAfter(3);
  const load = stock.load;
  stock.load = async function* (after) {
    if (after === 299n) {
      stock.epoch = "restored-stock";
      stock.items.delete(5n); // as if the backup had never had it
    }
    yield* load.call(stock, after);
  };
  const list = new StockList(stock, timeoutMs);
  expect(await jsonOf(list)).toBe(stock.json());
  expect((await list.readFresh()).epoch).toBe("restored-stock");
});
