import type { ChangeResult } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { describeRefusal, type Inventory, refusalOf } from "../support/grpc.ts";
import { type Changes, fillStock, type Groups, group, serveStock } from "../support/inventory-service.ts";
import type { OpenStock } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import { range } from "../support/stock-changes.ts";

/** What became of a change: its reason, or nothing, and the quantity that it left. */
const reduced = ({ item, refusal }: ChangeResult) => [refusal && describeRefusal(refusal).reason, item?.quantity];

describeEachDatabase("ApplyChanges", (url) => {
  const stack = suiteStack();
  let inventory: Inventory;
  let stock: OpenStock;
  beforeAll(async () => {
    ({ inventory, stock } = await serveStock(stack, url()));
  });
  beforeEach(() => stock.empty());

  /** Sends one request on a stream of its own. @returns its results */
  async function apply(...groups: Groups): Promise<ChangeResult[]> {
    const stream = inventory.applyChanges();
    stream.send({ groups });
    const { results } = (await stream.next())!;
    stream.call.end();
    return results;
  }

  test("gives every change a result of its own, in the order of the request", async () => {
    await fillStock(stock, 3);
    const results = await apply(
      group(
        { petId: 1n, quantity: 11 },
        { petId: 9n, quantity: 12 },
        { petId: 2n, quantity: 13, expectedRevisions: [7n] },
      ),
      group({ petId: 2n }),
      group({ petId: 2n, quantity: -1 }),
      group({ petId: 2n, quantity: 16, expectedRevisions: [2n] }),
      { ...group({ petId: 3n, quantity: 17 }), deadlineMs: 0 },
      group({ petId: 2n, quantity: 18, expectedRevisions: [7n, 1n, 2n] }),
      group({ petId: 3n, quantity: 2, expectedRevisions: [1n, 3n] }),
    );
    expect(results.map(reduced)).toEqual([
      [undefined, 11],
      ["ENTRY_NOT_FOUND", undefined],
      ["REVISION_MISMATCH", undefined],
      ["INVALID_FIELD", undefined],
      ["INVALID_FIELD", undefined],
      [undefined, 16],
      ["INVALID_FIELD", undefined], // without a deadline
      ["REVISION_MISMATCH", undefined], // the sixth was made before
      [undefined, 2],
    ]);
    expect(await inventory.get({ petId: 1n })).toEqual({ item: results[0]!.item });
    expect(await inventory.get({ petId: 3n })).toMatchObject({ item: { quantity: 2, revision: 3n } });
  });

  test("refuses a request of more than 1,000 changes, and a group without any", async () => {
    expect(await apply(group())).toEqual([]);
    const hundred = group(...Array.from({ length: 100 }, () => ({ petId: 1n, quantity: 1 })));
    for (const groups of [Array(11).fill(hundred), Array(1_001).fill(group())]) {
      await expect(apply(...groups)).rejects.toThrow("groups must have at most 1000 changes");
    }
  });

  test("refuses a change with the details of a call", async () => {
    const [result] = await apply(group({ petId: 9n, quantity: 1 }));
    const refusal = await refusalOf(inventory.update({ petId: 9n, quantity: 1 }));
    expect(describeRefusal(result!.refusal!)).toEqual(refusal);
  });

  test("makes an adjustment once for each request id, as AdjustInventory does", async () => {
    await fillStock(stock, 9);
    const adjustment = { petId: 9n, delta: -3, requestId: "order:17" };
    const [first, ...others] = await apply(
      group(adjustment),
      group(adjustment),
      group({ ...adjustment, delta: 3 }),
      group({ ...adjustment, requestId: "another", delta: -6 }),
    );
    expect([first, ...others].map((result) => reduced(result!))).toEqual([
      [undefined, 5],
      [undefined, 5],
      ["REQUEST_ID_REUSED", undefined],
      ["INSUFFICIENT_STOCK", undefined],
    ]);
    expect(await inventory.adjust(adjustment)).toEqual({ item: first!.item, replayed: true });
    expect([first!.replayed, others[0]!.replayed]).toEqual([false, true]);
  });

  test("makes an adjustment only while its entry has one of the revisions that are expected", async () => {
    await fillStock(stock, 9);
    const adjustment = { petId: 9n, delta: -3, requestId: "order:18" };
    const results = await apply(
      group({ ...adjustment, expectedRevisions: [999n] }),
      group({ ...adjustment, expectedRevisions: [9n, 999n] }),
      group({ ...adjustment, expectedRevisions: [9n, 999n] }),
      group(adjustment),
    );
    expect(results.map((result) => [...reduced(result), result.replayed])).toEqual([
      ["REVISION_MISMATCH", undefined, false],
      [undefined, 5, false],
      [undefined, 5, true],
      ["REQUEST_ID_REUSED", undefined, false],
    ]);
  });

  const keyed = (fingerprint: string, ...entries: readonly (readonly [petId: bigint, quantity: number])[]) => ({
    ...group(...entries.map(([petId, quantity]) => ({ petId, quantity }))),
    idempotencyKey: { account: "acme", key: "k", fingerprint },
  });

  test("makes keyed updates once, also of two groups, and says what is replayed", async () => {
    await fillStock(stock, 3);
    const updates = keyed("x", [1n, 11], [9n, 11], [2n, 1]);
    const results = await apply(group({ petId: 3n, quantity: 30 }), updates, updates);
    expect(results.map((result) => [...reduced(result), result.replayed])).toEqual([
      [undefined, 30, false],
      [undefined, 11, false],
      ["ENTRY_NOT_FOUND", undefined, false],
      [undefined, 1, false],
      [undefined, 11, true],
      ["ENTRY_NOT_FOUND", undefined, false],
      [undefined, 1, true],
    ]);
    expect([results[4]!.item, results[6]!.item]).toEqual([results[1]!.item, results[3]!.item]);
  });

  test("makes none of a group's keyed updates when one meets the record of another", async () => {
    await fillStock(stock, 3);
    await apply(keyed("x", [2n, 20]));
    const before = await stock.store.position();
    const results = await apply(keyed("y", [1n, 10], [2n, 20], [3n, 30]));
    expect(results.map(reduced)).toEqual(Array(3).fill(["KEY_REUSED", undefined]));
    expect(await stock.store.position()).toEqual(before);
  });

  test("shares keys of no account with UpdateInventory, and keeps accounts apart", async () => {
    await fillStock(stock, 1);
    const update = { petId: 1n, quantity: 7, expectedRevisions: [1n] };
    await inventory.update({ ...update, idempotencyKey: "k" });
    const results = await apply(
      { ...group(update), idempotencyKey: { key: "k" } },
      { ...group({ ...update, quantity: 8 }), idempotencyKey: { key: "k" } },
      { ...group({ petId: 1n, quantity: 8 }), idempotencyKey: { account: "acme", key: "k" } },
    );
    expect(results.map((result) => [...reduced(result), result.replayed])).toEqual([
      [undefined, 7, true],
      ["KEY_REUSED", undefined, false],
      [undefined, 8, false],
    ]);
  });

  test.each<[string, (two: ReturnType<typeof keyed>) => Groups[number]]>([
    ["the account", (two) => ({ ...two, idempotencyKey: { ...two.idempotencyKey, account: "a b" } })],
    ["the key", (two) => ({ ...two, idempotencyKey: { ...two.idempotencyKey, key: "" } })],
    ["the fingerprint", (two) => ({ ...two, idempotencyKey: { ...two.idempotencyKey, fingerprint: "a b" } })],
    ["the deadline", (two) => ({ ...two, deadlineMs: 0 })],
    ["the quantity of one", (two) => ({ ...two, changes: [{ petId: 1n, quantity: 1 }, { petId: 2n }] })],
    [
      "the kind of one",
      (two) => ({
        ...two,
        changes: [
          { petId: 1n, quantity: 1 },
          { petId: 2n, delta: 1, requestId: "r" },
        ],
      }),
    ],
    ["the entry of one", () => keyed("x", [1n, 10], [2n, 20], [1n, 30])],
    ["the number", () => keyed("x", ...range(1, 101).map((petId) => [petId, 1] as const))],
  ])("refuses all keyed updates of a group for a fault in %s", async (_what, wrong) => {
    await fillStock(stock, 2);
    const request = wrong(keyed("x", [1n, 10], [2n, 20]));
    const results = await apply(request);
    expect(results.map(reduced)).toEqual(Array(request.changes!.length).fill(["INVALID_FIELD", undefined]));
    expect(await stock.store.position()).toMatchObject({ revision: 2n });
  });

  test.each<[string, Changes[number]]>([
    ["a quantity and a delta", { petId: 1n, quantity: 1, delta: 1, requestId: "r" }],
    ["neither a quantity nor a delta", { petId: 1n }],
    ["a delta without a request id", { petId: 1n, delta: 1 }],
    ["a quantity with a request id", { petId: 1n, quantity: 1, requestId: "r" }],
    ["a delta of 0", { petId: 1n, delta: 0, requestId: "r" }],
    ["21 revisions", { petId: 1n, quantity: 1, expectedRevisions: range(1, 21) }],
  ])("refuses a change with %s", async (_what, change) => {
    await fillStock(stock, 1);
    expect((await apply(group(change))).map(reduced)).toEqual([["INVALID_FIELD", undefined]]);
    expect(await stock.store.position()).toMatchObject({ revision: 1n });
  });

  test("answers requests that are sent at once in order, and applies each once", async () => {
    await fillStock(stock, 100);
    const stream = inventory.applyChanges();
    for (let first = 0; first < 2_000; first += 100) {
      const quantities = Array.from({ length: 100 }, (_, i) => first + i);
      const changes = quantities.map((quantity, i) => ({ petId: BigInt(i + 1), quantity: 1_000 + quantity }));
      stream.send({ groups: [group(...changes)] });
    }
    stream.call.end();
    const items = [];
    for (let i = 0; i < 20; i++) items.push(...(await stream.next())!.results.map(({ item }) => item!));
    expect(items.map(({ quantity }, i) => quantity - i)).toEqual(Array(2_000).fill(1_000));
    expect(items.map(({ revision }) => revision)).toEqual(range(101, 2_100));
    expect(await stock.store.position()).toMatchObject({ revision: 2_100n });
    expect(await stream.next()).toBeUndefined();
  });
});
