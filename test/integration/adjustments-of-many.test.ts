// Checks that adjustments of many entries happen once and together, whichever way and to whichever service they are
// sent.
import { createInventoryClient, type InventoryClient } from "../../client/index.ts";
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { type Inventory, refusalOf } from "../support/grpc.ts";
import { callerOf, startInventoryService } from "../support/inventory-service.ts";
import { type Link, startLink } from "../support/link.ts";
import { type OpenStock, openMigratedStock } from "../support/open-stock.ts";
import { cleanup, type RunningProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { create, range } from "../support/stock-changes.ts";
import { until } from "../support/until.ts";

const adjustments = [
  { petId: 1n, delta: -3 },
  { petId: 3n, delta: 5, reason: "returned" },
  { petId: 2n, delta: -10 },
];

describeEachDatabase("adjustments of many entries over two inventory services", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let stock: OpenStock;
  let services: RunningProcess[];
  let unary: Inventory[];
  let sessions: InventoryClient[];
  let link: Link;

  beforeAll(async () => {
    stock = await openMigratedStock(stack, url());
    const start = () => startInventoryService(stack, url(), { LOG_LEVEL: "warn" });
    services = await Promise.all([start(), start()]);
    unary = services.map((service) => callerOf(stack, service));
    sessions = services.map(({ listen }) => connect(listen));
    link = await startLink(stack, Number(services[0]!.listen.split(":").at(-1)));
  });
  beforeEach(async () => {
    await stock.empty();
    await stock.store.write(range(1, 3).map((petId) => create(petId, 10)));
  });
  const connect = (address: string) => {
    const client = createInventoryClient({ address, timeoutMs: 20_000 });
    stack.defer(() => client.close());
    return client;
  };
  const quantities = async () => [...(await stock.store.getMany(range(1, 3))).values()].map((item) => item.quantity);
  const count = async () => (await stock.db("stock_ledger").whereNotNull("once_id")).length;

  test("a repeat has the first result, over the other call and at the other service", async () => {
    const first = await unary[0]!.batchAdjust({ adjustments, requestId: "order:17" });
    const item = { status: PetStatus.PET_STATUS_AVAILABLE, removed: false };
    expect(first).toEqual({
      items: [
        { ...item, petId: 1n, quantity: 7, revision: 4n },
        { ...item, petId: 3n, quantity: 15, revision: 5n },
        { ...item, petId: 2n, quantity: 0, revision: 6n },
      ],
      replayed: false,
    });
    await stock.store.write([{ kind: "remove", petId: 2n }]);
    for (const caller of unary) {
      expect(await caller.batchAdjust({ adjustments, requestId: "order:17" })).toEqual({ ...first, replayed: true });
    }
    for (const client of sessions) {
      const { items, replayed } = await client.adjustMany({ adjustments, requestId: "order:17" });
      expect(replayed).toBe(true);
      expect(items.map(({ petId, quantity, revision }) => [petId, quantity, revision])).toEqual(
        first.items.map(({ petId, quantity, revision }) => [petId, quantity, revision]),
      );
    }
    expect(await count()).toBe(3);
  });

  test("the request id of other adjustments is refused by both calls, with that id and no change", async () => {
    await sessions[0]!.adjustMany({ adjustments, requestId: "used" });
    const others = [
      adjustments.toReversed(),
      adjustments.slice(1),
      [...adjustments.slice(1), { petId: 1n, delta: -4 }],
    ];
    for (const other of others) {
      const refusal = await refusalOf(unary[1]!.batchAdjust({ adjustments: other, requestId: "used" }));
      expect(refusal).toMatchObject({
        code: "INVALID_ARGUMENT",
        reason: "REQUEST_ID_REUSED",
        metadata: { request_id: "used" },
        fields: ["request_id"],
      });
      await expect(sessions[1]!.adjustMany({ adjustments: other, requestId: "used" })).rejects.toMatchObject({
        code: "INVALID_ARGUMENT",
        errorReason: "REQUEST_ID_REUSED",
        details: { request_id: "used" },
      });
    }
    expect(await quantities()).toEqual([7, 0, 15]);
    await unary[0]!.adjust({ petId: 1n, delta: 1, requestId: "used" }); // an id of a single adjustment is another one
  });

  test.each([
    ["insufficient stock", { petId: 2n, delta: -11 }, "INSUFFICIENT_STOCK", { pet_id: "2", quantity: "10" }],
    ["more than a quantity holds", { petId: 2n, delta: 2_147_483_647 }, "QUANTITY_OVERFLOW", { pet_id: "2" }],
    ["no entry", { petId: 4n, delta: 1 }, "ENTRY_NOT_FOUND", { pet_id: "4" }],
    ["another revision", { petId: 2n, delta: 1, expectedRevision: 9n }, "REVISION_MISMATCH", { pet_id: "2" }],
  ])("%s refuses all over both calls, and names the entry", async (_what, refused, reason, details) => {
    const batch = [{ petId: 1n, delta: -3 }, refused, { petId: 3n, delta: 5 }];
    const { expectedRevision, ...rest } = { expectedRevision: undefined, ...refused };
    const wire = batch.with(1, {
      ...rest,
      expectedRevisions: expectedRevision === undefined ? [] : [expectedRevision],
    } as never);
    expect(await refusalOf(unary[0]!.batchAdjust({ adjustments: wire, requestId: "r" }))).toMatchObject({
      reason,
      metadata: details,
    });
    await expect(sessions[0]!.adjustMany({ adjustments: batch, requestId: "r" })).rejects.toMatchObject({
      errorReason: reason,
      details,
    });
    expect(await quantities()).toEqual([10, 10, 10]);
    expect(await count()).toBe(0);
  });

  test("they happen once when eight go out at once, over both calls and to both services", async () => {
    for (let round = 0; round < 20; round++) {
      const batch = { adjustments: range(1, 3).map((petId) => ({ petId, delta: 1 })), requestId: `round-${round}` };
      const calls = [0, 1, 0, 1].flatMap((i) => [unary[i]!.batchAdjust(batch), sessions[i]!.adjustMany(batch)]);
      const answers = await Promise.all(calls);
      expect(answers.filter(({ replayed }) => !replayed)).toHaveLength(1);
      for (const { items } of answers) expect(items.map(({ quantity }) => quantity)).toEqual(Array(3).fill(11 + round));
    }
    expect(await count()).toBe(60);
  });

  test.each(["a unary call", "a session"])("%s whose answer is lost is repeated at the other service", async (way) => {
    const address = `127.0.0.1:${link.port}`;
    const requestId = way.replaceAll(" ", "-");
    const sending =
      way === "a session"
        ? connect(address).adjustMany({ adjustments, requestId })
        : callerOf(stack, { listen: address } as RunningProcess).batchAdjust({ adjustments, requestId });
    const lost = sending.then(
      ({ replayed }) => `replayed: ${replayed}`,
      () => "failed",
    );
    link.delayMs = 1_000; // so the answer is still on its way when the change is there
    await until(async () => (await count()) === 3);
    link.cut();
    const again = await sessions[1]!.adjustMany({ adjustments, requestId });
    expect(again).toMatchObject({ replayed: true, items: [{ quantity: 7 }, { quantity: 15 }, { quantity: 0 }] });
    link.mend();
    expect(await lost).toBe(way === "a session" ? "replayed: true" : "failed"); // a session repeats by itself
    expect(await quantities()).toEqual([7, 0, 15]);
  });
});
