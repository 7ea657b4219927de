// Checks that an adjustment over gRPC happens once for each request id, at any replica and however often it is sent.
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { type Inventory, refusalOf } from "../support/grpc.ts";
import { callerOf, startInventoryService } from "../support/inventory-service.ts";
import { type OpenStock, openMigratedStock } from "../support/open-stock.ts";
import { cleanup, type RunningProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

const { PET_STATUS_AVAILABLE } = PetStatus;
const dayMs = 24 * 60 * 60_000;

describeEachDatabase("adjustments over two inventory services", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let stock: OpenStock;
  const services: RunningProcess[] = [];
  const callers: Inventory[] = [];

  const start = (env: Record<string, string> = {}) =>
    startInventoryService(stack, url(), { LOG_LEVEL: "warn", ...env });

  beforeAll(async () => {
    stock = await openMigratedStock(stack, url());
    services.push(...(await Promise.all([start(), start()])));
    for (const service of services) callers.push(callerOf(stack, service));
  });
  beforeEach(async () => {
    await stock.empty();
    for (const petId of [1n, 2n, 3n, 4n]) {
      await stock.store.write([{ kind: "create", petId, quantity: 10, status: "available" }]);
    }
  });

  test("adjustments repeat their result at a replica, after changes, a restart and a removal", async () => {
    const adjustment = { petId: 1n, delta: -3, requestId: "order:17.a-B_c" };
    const item = { petId: 1n, quantity: 7, status: PET_STATUS_AVAILABLE, revision: 5n, removed: false };
    expect(await callers[0]!.adjust(adjustment)).toEqual({ item, replayed: false });
    expect(await callers[0]!.adjust(adjustment)).toEqual({ item, replayed: true });
    await callers[1]!.update({ petId: 1n, quantity: 0 });
    expect(await callers[1]!.adjust(adjustment)).toEqual({ item, replayed: true });
    await callers[1]!.remove({ petId: 1n });
    await services[0]!.kill("SIGKILL");
    services[0] = await start({ INVENTORY_LISTEN: services[0]!.listen });
    const again = callerOf(stack, services[0]);
    expect(await again.adjust(adjustment)).toEqual({ item, replayed: true });
    expect(await refusalOf(again.adjust({ ...adjustment, delta: 3 }))).toMatchObject({ reason: "REQUEST_ID_REUSED" });
    expect(await refusalOf(again.adjust({ ...adjustment, requestId: "new" }))).toMatchObject({ code: "NOT_FOUND" });
    expect(await stock.store.position()).toMatchObject({ revision: 7n });
  });

  test("adjustments that were refused are decided again when they are sent again", async () => {
    const adjustment = { petId: 1n, delta: -11, requestId: "r" };
    const [first, second] = callers as [Inventory, Inventory];
    expect(await refusalOf(first.adjust(adjustment))).toMatchObject({
      code: "FAILED_PRECONDITION",
      metadata: { quantity: "10" },
    });
    await second.adjust({ petId: 1n, delta: 1, requestId: "s" });
    expect(await first.adjust(adjustment)).toMatchObject({ item: { quantity: 0 }, replayed: false });
    expect(await refusalOf(second.adjust({ petId: 1n, delta: -1, requestId: "t" }))).toMatchObject({
      code: "FAILED_PRECONDITION",
      metadata: { quantity: "0" },
    });
  });

  test("adjustments happen once, without an error, when four go out at once, two to each service", async () => {
    const adjustments = Array.from({ length: 400 }, (_, i) => ({
      petId: BigInt((i % 4) + 1),
      delta: (i % 9) + 1,
      requestId: `request-${i}`,
    }));
    const answers = await Promise.all(
      adjustments.map((adjustment) => Promise.all([...callers, ...callers].map((caller) => caller.adjust(adjustment)))),
    );
    for (const four of answers) {
      expect(four.filter(({ replayed }) => !replayed)).toHaveLength(1);
      for (const { item } of four) expect(item).toEqual(four[0]!.item);
    }
    const { items } = await callers[0]!.batchGet({ petIds: [1n, 2n, 3n, 4n] });
    for (const { petId, quantity } of items) {
      const own = adjustments.filter((adjustment) => adjustment.petId === petId);
      expect(quantity).toBe(own.reduce((sum, { delta }) => sum + delta, 10));
    }
    expect(await stock.db("stock_ledger").whereNotNull("once_id")).toHaveLength(400);
  });

  test("adjustments never take more than there is when many callers compete for the last pieces", async () => {
    const results = await Promise.all(
      Array.from({ length: 60 }, (_, i) =>
        callers[i % 2]!.adjust({ petId: 2n, delta: -1, requestId: `buy-${i}` }).then(
          ({ item }) => item!.quantity,
          ({ details }) => details as string,
        ),
      ),
    );
    const sold = results.filter((result) => typeof result === "number");
    expect(sold.toSorted((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(new Set(results.filter((result) => typeof result === "string"))).toEqual(
      new Set(["entry 2 has only 0 left"]),
    );
  });

  test("adjustments are deleted by a service when they are older than a day, and not before", async () => {
    const rowOf = (id: number, ageMs: number) => ({
      id,
      kind: "adjust",
      once_id: `aged ${ageMs}`,
      pet_id: 1,
      fingerprint: "1",
      quantity: 1,
      status: "available",
      made_at: Date.now() - ageMs,
    });
    await stock.db("stock_ledger").where("id", "<", 3).delete();
    await stock.db("stock_ledger").insert([rowOf(1, 2 * dayMs), rowOf(2, dayMs)]);
    const service = await start({ INVENTORY_HISTORY_DAYS: "0" }); // it deletes old adjustments at its start
    const left = () => stock.db("stock_ledger").where("id", "<", 3).pluck("once_id");
    await until(async () => (await left()).length === 1);
    expect(await left()).toEqual([`aged ${dayMs}`]);
    expect(await service.stop()).toBe(0);
  });
});
