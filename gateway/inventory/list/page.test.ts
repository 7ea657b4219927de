import { gunzipSync } from "node:zlib";
import fc from "fast-check";
import { PlainStock } from "../../../test/support/plain-stock.ts";
import { pageOf } from "./page.ts";
import type { Body, Snapshot } from "./snapshot.ts";
import { StockList } from "./stock-list.ts";

const bytesOf = ({ pieces, text }: Body) => (pieces.length > 0 ? Buffer.concat(pieces) : Buffer.from(text!));
const textOf = (snapshot: Snapshot) => bytesOf(snapshot.plain()).toString();
const unzipped = async (snapshot: Snapshot) => gunzipSync(bytesOf(await snapshot.gzip())).toString();

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
          const { entries, last } = pageOf(snapshot, range);
          expect(last).toBe(following.length > shown.length ? shown.at(-1)!.petId : undefined);
          const expected = `[${shown.map(({ petId: id, quantity }) => `{"petId":${id},"quantity":${quantity},"status":"available"}`).join()}]`;
          expect(textOf(entries)).toBe(expected);
          expect(await unzipped(entries)).toBe(expected);
          expect([entries.etag, entries.gzipEtag]).toEqual([snapshot.etag, snapshot.gzipEtag]);
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
    const { entries, last } = pageOf(snapshot, { after, limit: 300 });
    texts.push(textOf(entries).slice(1, -1));
    after = last;
  }
  expect(texts).toHaveLength(7);
  expect(`[${texts.join()}]`).toBe(textOf(snapshot));
});

test("no page begins with a chunk of the list, which would keep another form of its bytes", async () => {
  const stock = new PlainStock();
  for (let i = 0n; i < 2_000n; i++) stock.set(i, 1);
  const snapshot = await new StockList(stock, 60_000).readFresh();
  for (let after = -1n; after < 1_999n; after++) {
    const { entries } = pageOf(snapshot, { after, limit: 256 });
    const first = entries.chunks.find((chunk) => chunk.entries > 0)!;
    expect(snapshot.chunks.includes(first)).toBe(false);
  }
});

test("a page shares its inner chunks with the list, so that they are compressed once", async () => {
  const stock = new PlainStock();
  for (let i = 0n; i < 5_000n; i++) stock.set(i, 1);
  const snapshot = await new StockList(stock, 60_000).readFresh();
  const { entries } = pageOf(snapshot, { after: 999n, limit: 2_000 });
  expect(entries.chunks.slice(1, -1).every((chunk) => snapshot.chunks.includes(chunk))).toBe(true);
  expect(entries.chunks).toHaveLength(9);
});
