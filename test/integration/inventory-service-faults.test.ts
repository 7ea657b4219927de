import { status } from "@grpc/grpc-js";
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { createMysqlDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { describeRefusal, type Inventory, refusalOf, statusOf } from "../support/grpc.ts";
import { fillStock, group, openChecks, serveStock } from "../support/inventory-service.ts";
import { failAdjustments, holdWriteLock, type OpenStock, untilRunning } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";

const { PET_STATUS_SOLD } = PetStatus;

describeEachDatabase("faults of the database", (url) => {
  const stack = suiteStack();
  let inventory: Inventory;
  let stock: OpenStock;
  beforeAll(async () => {
    ({ inventory, stock } = await serveStock(stack, url()));
  });
  beforeEach(() => stock.empty());

  const check = () => openChecks(stack, inventory);

  test("a database failure is UNAVAILABLE to every caller, without its cause, until it is over", async () => {
    await fillStock(stock, 1);
    const at = await stock.store.position();
    const stream = check();
    stream.send(at);
    expect(await stream.next()).toBeDefined();
    await stock.db.schema.renameTable("stock_head", "stock_head_away");
    await stock.db.schema.renameTable("stock", "stock_away");
    stream.send(at);
    const calls = {
      check: stream.next(),
      get: inventory.get({ petId: 1n }),
      update: inventory.update({ petId: 1n, quantity: 5 }),
      create: inventory.create({ petId: 2n, quantity: 5, status: PET_STATUS_SOLD }),
      remove: inventory.remove({ petId: 1n }),
      adjust: inventory.adjust({ petId: 1n, delta: 1, requestId: "a" }),
      setStatus: inventory.setStatus({ petId: 1n, status: PET_STATUS_SOLD }),
      batchGet: inventory.batchGet({ petIds: [1n] }),
      list: inventory.list(),
    };
    const details = await Promise.all(
      Object.entries(calls).map(async ([name, call]) => {
        const { reason, retryDelayMs } = await refusalOf(call);
        const answer = await call.catch((error) => `${status[error.code]} ${error.details}`);
        return [name, answer, reason, retryDelayMs];
      }),
    );
    const changes = inventory.applyChanges();
    changes.send({ groups: [group({ petId: 1n, quantity: 5 })] });
    const [result] = (await changes.next())!.results;
    changes.call.cancel();
    await stock.db.schema.renameTable("stock_away", "stock");
    await stock.db.schema.renameTable("stock_head_away", "stock_head");

    const fault = "the stock database is not available";
    expect(details).toEqual(Object.keys(calls).map((name) => [name, `UNAVAILABLE ${fault}`, "STOCK_UNAVAILABLE", 500]));
    const refusal = { code: status.UNAVAILABLE, message: fault };
    expect(result).toMatchObject({ item: undefined, replayed: false, refusal });
    expect(describeRefusal(result!.refusal!)).toMatchObject({ reason: "STOCK_UNAVAILABLE", retryDelayMs: 500 });
    expect(await inventory.update({ petId: 1n, quantity: 6 })).toMatchObject({ item: { quantity: 6 } });
    const later = check();
    later.send(at);
    expect(await later.next()).toMatchObject({ items: [{ quantity: 6 }] });
  });

  test("an adjustment that failed can be repeated, and is of unknown outcome once COMMIT was sent", async () => {
    await fillStock(stock, 1);
    // The last statement before the commit fails. On MySQL it shares a packet with the commit.
    const restore = await failAdjustments(stock.db);
    const adjustment = { petId: 1n, delta: 5, requestId: "a" };
    const refusal = await refusalOf(inventory.adjust(adjustment));
    await restore();
    const reason = url().startsWith("sqlite:") ? "STOCK_UNAVAILABLE" : "OUTCOME_UNKNOWN";
    expect(refusal).toMatchObject({ code: "UNAVAILABLE", reason, retryDelayMs: 500 });
    expect(await inventory.adjust(adjustment)).toMatchObject({ item: { quantity: 5 }, replayed: false });
  });
});

describe("callers (MySQL/MariaDB)", () => {
  const stack = suiteStack();
  let url: string;
  let inventory: Inventory;
  let stock: OpenStock;
  beforeAll(async () => {
    url = await createMysqlDatabase();
    stack.defer(() => dropDatabase(url));
    ({ inventory, stock } = await serveStock(stack, url, { INVENTORY_MAX_QUEUED: "2" }));
  });
  beforeEach(async () => {
    await stock.db("stock").delete();
    await stock.store.write([1n, 2n, 3n, 4n].map((petId) => ({ kind: "create", petId, quantity: 1, status: "sold" })));
  });

  /** Begins a write that cannot go on before `release()`, so that all later ones wait for their turn. */
  async function blocked() {
    const lock = await holdWriteLock(url);
    const first = inventory.update({ petId: 1n, quantity: 100 });
    await untilRunning(url, "select", "update");
    return { first, release: () => lock.release() };
  }

  test("a caller gets DEADLINE_EXCEEDED at its deadline, and its update is not written later", async () => {
    const { first, release } = await blocked();
    const second = inventory.update({ petId: 2n, quantity: 100 }, { deadline: Date.now() + 200 });
    const third = inventory.update({ petId: 3n, quantity: 100 });
    expect(await statusOf(second)).toBe("DEADLINE_EXCEEDED");
    await release();
    const { item } = await first;
    expect(await third).toMatchObject({ item: { quantity: 100, revision: item!.revision + 1n } });
    expect(await inventory.get({ petId: 2n })).toMatchObject({ item: { quantity: 1 } });
  });

  test("a caller gets CANCELLED when it cancels, and its update is not written later", async () => {
    const { first, release } = await blocked();
    const second = inventory.begin(inventory.client.updateInventory, {
      petId: 2n,
      quantity: 100,
      expectedRevisions: [],
    });
    const third = inventory.update({ petId: 3n, quantity: 100 });
    await inventory.get({ petId: 2n }); // on the same connection, so both have arrived
    second.cancel();
    expect(await statusOf(second.response)).toBe("CANCELLED");
    await inventory.get({ petId: 2n });
    await release();
    const { item } = await first;
    expect(await third).toMatchObject({ item: { quantity: 100, revision: item!.revision + 1n } });
    expect(await inventory.get({ petId: 2n })).toMatchObject({ item: { quantity: 1 } });
  });

  test("a caller gets DEADLINE_EXCEEDED for an expired change of a stream, which never happens", async () => {
    const { first, release } = await blocked();
    const stream = inventory.applyChanges();
    const expired = { ...group({ petId: 2n, quantity: 100 }), deadlineMs: 1 };
    stream.send({ groups: [expired, group({ petId: 3n, quantity: 100 })] });
    await inventory.get({ petId: 2n });
    await release();
    const { item } = await first;
    const { results } = (await stream.next())!;
    expect(results).toMatchObject([
      { item: undefined, refusal: { code: status.DEADLINE_EXCEEDED } },
      { item: { revision: item!.revision + 1n }, refusal: undefined },
    ]);
    expect(describeRefusal(results[0]!.refusal!)).toMatchObject({ reason: "DEADLINE_PASSED" });
    stream.call.cancel();
  });

  test("a caller gets RESOURCE_EXHAUSTED at once when the queue is full, and the service goes on", async () => {
    const { first, release } = await blocked();
    const waiting = [2n, 3n].map((petId) => inventory.update({ petId, quantity: 100 }));
    const refusal = await refusalOf(inventory.update({ petId: 4n, quantity: 100 }));
    expect(refusal).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "QUEUE_FULL", retryDelayMs: 500 });
    await release();
    await Promise.all([first, ...waiting]);
    expect(await inventory.update({ petId: 4n, quantity: 100 })).toMatchObject({ item: { quantity: 100 } });
  });
});
