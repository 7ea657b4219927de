import { gunzipSync } from "node:zlib";
import fc from "fast-check";
import { PlainStock } from "../../../test/support/plain-stock.ts";
import { type ListPage, pageOf } from "./page.ts";
import type { Body } from "./snapshot.ts";
import { StockList } from "./stock-list.ts";

const bytesOf = ({ pieces, text }: Body) => (pieces.length > 0 ? Buffer.concat(pieces) : Buffer.from(text!));
const textOf = (page: Pick<ListPage, "plain">) => bytesOf(page.plain()).toString();
const unzipped = async (page: ListPage) => gunzipSync(bytesOf(await page.gzip())).toString();

test("a page has the entries after its petId up to its limit, and says whether more follow", async () => {
  const petId = fc.oneof(fc.bigInt({ min: -5n, max: 1_500n }), fc.constantFrom(2n ** 63n - 1n, -(2n ** 63n)));
  const change = fc.record({ petId, isRemoved: fc.boolean() });
  const asked = fc.record({
    after: fc.oneof(petId, fc.constant(-(2n ** 63n) - 1n)),
    limit: fc.oneof(fc.integer({ min: 1, max: 12 }), fc.constantFrom(255, 256, 257, 1_000, 10_000)),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(0, 3, 256, 1_400),
      fc.array(change, { maxLength: 30 }),
      fc.tuple(fc.nat(1_400), fc.nat(600)),
      fc.array(asked, { minLength: 1, maxLength: 8 }),
      async (seeded, changes, [gapFrom, gapLength], pages) => {
        const stock = new PlainStock();
        for (let i = 0; i < seeded; i++) stock.set(BigInt(i), i);
        const list = new StockList(stock, 60_000);
        await list.readFresh();
        for (const { petId: id, isRemoved } of changes) isRemoved ? stock.remove(id) : stock.set(id, 7);
        for (let i = 0; i < gapLength; i++) stock.remove(BigInt(gapFrom + i));
        const snapshot = await list.readFresh();
        const all = stock.sorted();
        for (const range of pages) {
          const following = all.filter(({ petId: id }) => id > range.after);
          const shown = following.slice(0, range.limit);
          const page = pageOf(snapshot, range);
          expect(page.nextAfter).toBe(following.length > shown.length ? shown.at(-1)!.petId : undefined);
          const expected = `[${shown.map(({ petId: id, quantity }) => `{"petId":${id},"quantity":${quantity},"status":"available"}`).join()}]`;
          expect(textOf(page)).toBe(expected);
          expect(await unzipped(page)).toBe(expected);
        }
      },
    ),
    { numRuns: 150 },
  );
});

test("the pages of a list that stands still are, one after the other, the list", async () => {
  const stock = new PlainStock();
  for (let i = 0n; i < 2_000n; i++) stock.set(i * 3n, 1);
  const snapshot = await new StockList(stock, 60_000).readFresh();
  const texts: string[] = [];
  for (let after: bigint | undefined = -1n; after !== undefined; ) {
    const page = pageOf(snapshot, { after, limit: 300 });
    texts.push(textOf(page).slice(1, -1));
    after = page.nextAfter;
  }
  expect(texts).toHaveLength(7);
  expect(`[${texts.join()}]`).toBe(textOf(snapshot));
});

test("thousands of pages cost hardly more bytes than the list, compressed or not", async () => {
  const stock = new PlainStock();
  for (let i = 0; i < 9_000; i++) stock.set(BigInt(i * i), (i * 7_919) % 10_007); // little to compress
  const snapshot = await new StockList(stock, 60_000).readFresh();
  const pages = Array.from({ length: 2_000 }, (_, i) => pageOf(snapshot, { after: BigInt(i), limit: 5_000 }));
  const memory = (bodies: readonly Body[]) =>
    new Set(bodies.flatMap(({ pieces }) => pieces.map(({ buffer }) => buffer)));
  const listed = new Set<unknown>(snapshot.chunks.map(({ json }) => json.buffer));
  const plain = [...memory(pages.map((page) => page.plain()))];
  expect(plain.filter((buffer) => !listed.has(buffer)).map(({ byteLength }) => byteLength)).toEqual([1, 1]);
  const [first, second] = await Promise.all(pages.slice(0, 2).map((page) => page.gzip()));
  const shared = second!.pieces.filter((piece) => first!.pieces.includes(piece));
  // All but the ends: the first and the last part, and the checksum.
  expect(shared).toHaveLength(second!.pieces.length - 3);
});

test("a chunk that could not be compressed once is compressed for the next reader", async () => {
  const stock = new PlainStock();
  for (let i = 0n; i < 600n; i++) stock.set(i, 1);
  const snapshot = await new StockList(stock, 60_000).readFresh();
  const { json } = snapshot.chunks[1]!;
  const compressed = async () => gunzipSync(bytesOf(await snapshot.deflate(() => {}))).toString();
  const fail = () => {
    throw new Error("no memory");
  };
  Object.defineProperty(json, "length", { configurable: true, get: fail });
  await expect(compressed()).rejects.toThrow("no memory");
  Reflect.deleteProperty(json, "length");
  expect(await unzipped(pageOf(snapshot, { after: -1n, limit: 600 }))).toBe(stock.json());
  expect(await compressed()).toBe(stock.json());
});
