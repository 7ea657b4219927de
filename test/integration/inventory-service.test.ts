import { ServerCredentials, status } from "@grpc/grpc-js";
import { createRpcServer } from "../../inventory-svc/grpc-server.ts";
import { inventoryHandlers } from "../../inventory-svc/rpc/handlers.ts";
import { ChangeFeed } from "../../inventory-svc/stock/change-feed.ts";
import { GroupCommit } from "../../inventory-svc/stock/group-commit.ts";
import { ListFeed } from "../../inventory-svc/stock/list-feed.ts";
import { StockHistory } from "../../inventory-svc/stock/stock-history.ts";
import {
  type CheckInventoryRequest,
  type CheckInventoryResponse,
  PetStatus,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { maxPetId, minPetId } from "../../proto/pet.ts";
import { describeEachDatabase } from "../support/databases.ts";
import { connectInventory, type Inventory, messagesOf, refusalOf, statusOf } from "../support/grpc.ts";
import { fillStock, openChecks, serveStock } from "../support/inventory-service.ts";
import { type OpenStock, pagesOf } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";
import { range } from "../support/stock-changes.ts";

const { PET_STATUS_UNSPECIFIED, PET_STATUS_AVAILABLE, PET_STATUS_PENDING, PET_STATUS_SOLD } = PetStatus;

describeEachDatabase("the inventory service over gRPC", (url) => {
  const stack = suiteStack();
  let inventory: Inventory;
  let stock: OpenStock;
  beforeAll(async () => {
    ({ inventory, stock } = await serveStock(stack, url()));
  });
  beforeEach(() => stock.empty());

  const check = () => openChecks(stack, inventory);

  test("an entry is created, read, changed and removed, and each change takes the next revision", async () => {
    const made = { petId: 7n, quantity: 3, status: PET_STATUS_PENDING, revision: 1n, removed: false };
    expect(await inventory.create({ petId: 7n, quantity: 3, status: PET_STATUS_PENDING })).toEqual({ item: made });
    expect(await inventory.get({ petId: 7n })).toEqual({ item: made });
    const changed = { ...made, quantity: 0, revision: 2n };
    expect(await inventory.update({ petId: 7n, quantity: 0 })).toMatchObject({ item: changed });
    expect(await inventory.update({ petId: 7n, quantity: 0 })).toMatchObject({ item: changed }); // changes nothing
    const last = { ...made, quantity: 2_147_483_647, revision: 3n };
    expect(await inventory.update({ petId: 7n, quantity: 2_147_483_647, expectedRevisions: [2n] })).toMatchObject({
      item: last,
    });
    expect(await inventory.get({ petId: 7n })).toEqual({ item: last });
    expect(await inventory.remove({ petId: 7n })).toEqual({ revision: 4n });
    expect(await statusOf(inventory.get({ petId: 7n }))).toBe("NOT_FOUND");
    const { item } = await inventory.create({ petId: 7n, quantity: 1, status: PET_STATUS_UNSPECIFIED });
    expect(item).toEqual({ petId: 7n, quantity: 1, status: PET_STATUS_AVAILABLE, revision: 5n, removed: false });
  });

  test.each([minPetId, -(2n ** 53n) - 1n, -1n, 0n, 2n ** 53n + 1n, maxPetId])(
    "petId %s is exact in every call",
    async (petId) => {
      const start = await stock.store.position();
      const item = { petId, quantity: 1, status: PET_STATUS_SOLD, revision: 1n, removed: false };
      expect(await inventory.create({ petId, quantity: 1, status: PET_STATUS_SOLD })).toEqual({ item });
      expect(await inventory.get({ petId })).toEqual({ item });
      expect((await inventory.list()).flatMap(({ items }) => items)).toEqual([item]);
      const stream = check();
      stream.send(start);
      expect(await stream.next()).toMatchObject({ items: [item], revision: 1n });
      await inventory.update({ petId, quantity: 2, expectedRevisions: [1n] });
      await inventory.remove({ petId });
      stream.send({ ...start, revision: 1n });
      expect(await stream.next()).toMatchObject({ items: [{ petId, removed: true, revision: 3n }] });
    },
  );

  test("revisions over gRPC are exact up to the last int64", async () => {
    await stock.db("stock_head").update({ revision: maxPetId - 2n });
    const { item } = await inventory.create({ petId: 1n, quantity: 1, status: PET_STATUS_SOLD });
    expect(item!.revision).toBe(maxPetId - 1n);
    await inventory.update({ petId: 1n, quantity: 2, expectedRevisions: [maxPetId - 1n] });
    expect((await inventory.list()).map(({ revision }) => revision)).toEqual([maxPetId, maxPetId]);
  });

  test("an update with an idempotency key happens once, and its repeat gets the first result", async () => {
    await fillStock(stock, 2);
    const update = { petId: 1n, quantity: 70, expectedRevisions: [1n], idempotencyKey: "k" };
    const first = await inventory.update(update);
    expect(first).toMatchObject({ item: { quantity: 70 }, replayed: false });
    await inventory.update({ petId: 1n, quantity: 71 });
    expect(await inventory.update(update)).toEqual({ ...first, replayed: true });
    expect(await inventory.get({ petId: 1n })).toMatchObject({ item: { quantity: 71 } });
    // The key is of this entry: it is no id of an adjustment, and not taken for another entry.
    expect(await inventory.update({ ...update, petId: 2n, expectedRevisions: [2n] })).toMatchObject({
      replayed: false,
    });
    expect(await inventory.adjust({ petId: 1n, delta: 1, requestId: "k" })).toMatchObject({ replayed: false });
    for (const other of [{ quantity: 72 }, { expectedRevisions: [2n] }, { expectedRevisions: [1n, 2n] }]) {
      expect(await refusalOf(inventory.update({ ...update, ...other }))).toMatchObject({ reason: "KEY_REUSED" });
    }
  });

  describe("SetStatus", () => {
    test("sets any status after any other under a new revision, and takes none when it stays", async () => {
      await inventory.create({ petId: 7n, quantity: 3, status: PET_STATUS_SOLD });
      let revision = 1n;
      const all = [PET_STATUS_AVAILABLE, PET_STATUS_PENDING, PET_STATUS_SOLD];
      for (const to of [...all, ...all.toReversed().slice(1), PET_STATUS_SOLD]) {
        const item = { petId: 7n, quantity: 3, status: to, revision: revision + 1n, removed: false };
        expect(await inventory.setStatus({ petId: 7n, status: to, expectedRevision: revision })).toEqual({ item });
        expect(await inventory.setStatus({ petId: 7n, status: to })).toEqual({ item }); // changes nothing
        revision += 1n;
      }
      expect(await stock.store.position()).toMatchObject({ revision });
    });
  });

  describe("BatchGetInventoryItems", () => {
    test("returns each existing entry and each missing id once, in the order of the request", async () => {
      await fillStock(stock, 4);
      await inventory.create({ petId: maxPetId, quantity: 7, status: PET_STATUS_PENDING });
      await inventory.remove({ petId: 2n });
      const petIds = [9n, maxPetId, 3n, 2n, 1n, 3n, minPetId, 9n];
      const { items, missingPetIds } = await inventory.batchGet({ petIds });
      expect(items).toEqual([
        { petId: maxPetId, quantity: 7, status: PET_STATUS_PENDING, revision: 5n, removed: false },
        { petId: 3n, quantity: 2, status: PET_STATUS_AVAILABLE, revision: 3n, removed: false },
        { petId: 1n, quantity: 0, status: PET_STATUS_AVAILABLE, revision: 1n, removed: false },
      ]);
      expect(missingPetIds).toEqual([9n, 2n, minPetId]);
    });

    test("accepts an empty list of ids, and 1,000 different ids", async () => {
      await fillStock(stock, 999);
      expect(await inventory.batchGet({ petIds: [] })).toEqual({ items: [], missingPetIds: [] });
      const { items, missingPetIds } = await inventory.batchGet({ petIds: [...range(1, 1_000), 1n] });
      expect(items.map(({ petId }) => petId)).toEqual(range(1, 999));
      expect(missingPetIds).toEqual([1_000n]);
    });
  });

  describe("ListInventory", () => {
    test("returns the position of an empty stock", async () => {
      expect(await inventory.list()).toEqual([{ items: [], ...(await stock.store.position()) }]);
    });

    test("returns each of 5,000 entries once, in the order of petId, in batches with one position", async () => {
      await fillStock(stock, 4_998);
      for (const petId of [maxPetId, minPetId]) await inventory.create({ petId, quantity: 1, status: PET_STATUS_SOLD });
      const batches = await inventory.list();
      const ids = batches.flatMap(({ items }) => items).map(({ petId }) => petId);
      expect(ids).toHaveLength(5_000);
      expect(ids).toEqual([minPetId, ...Array.from({ length: 4_998 }, (_, i) => BigInt(i + 1)), maxPetId]);
      const { epoch, revision } = await stock.store.position();
      expect(new Set(batches.map((batch) => `${batch.epoch} ${batch.revision}`))).toEqual(
        new Set([`${epoch} ${revision}`]),
      );
      expect(Math.max(...batches.map(({ items }) => items.length))).toBeLessThanOrEqual(1_000);
      expect(batches.at(-1)!.items.at(-1)).toEqual({
        petId: maxPetId,
        quantity: 1,
        status: PET_STATUS_SOLD,
        revision: 4_999n,
        removed: false,
      });
    });

    test("leaves no gap: each change made while it is read is in the list or follows its position", async () => {
      await fillStock(stock, 2_500);
      // The same service in this process. With each page that it reads, one entry changes and another is removed.
      const changing = {
        position: () => stock.store.position(),
        async rowsAfter(after: bigint | undefined, limit: number) {
          const rows = await stock.store.rowsAfter(after, limit);
          const [first, second] = rows.map(({ petId }) => petId) as [bigint, bigint];
          await stock.store.write([
            { kind: "update", petId: first, quantity: 77_777 },
            { kind: "remove", petId: second },
          ]);
          return rows;
        },
      };
      const commits = new GroupCommit({
        store: stock.store,
        maxBatch: 100,
        maxQueued: 100,
        onDequeued: () => {},
        onWritten: () => {},
      });
      const server = createRpcServer({
        handlers: inventoryHandlers({
          store: stock.store,
          history: new StockHistory(stock.db),
          keepsHistory: true,
          actorOf: () => ({ kind: "internal" }),
          lists: new ListFeed(changing, 1_000),
          commits,
          feed: new ChangeFeed((from) => stock.store.changesAfter(from, 100)),
          draining: new AbortController().signal,
          onCall: () => {},
        }),
        credentials: ServerCredentials.createInsecure(),
        maxConnectionAgeMs: 60_000,
        connectionGraceMs: 1_000,
      });
      const local = connectInventory(await server.listen({ host: "127.0.0.1", port: 0 }));
      const batches = await local.list();
      local.close();
      await server.close(1_000);

      const known = new Map(batches.flatMap(({ items }) => items.map((item) => [item.petId, item.quantity])));
      const stream = check();
      stream.send(batches[0]!);
      const answer = (await stream.next())!;
      expect(answer).toMatchObject({ reset: false, more: false });
      const removed = answer.items.filter((item) => item.removed).map(({ petId }) => petId);
      expect(removed).toEqual([2n, 1_002n, 2_002n]);
      for (const { petId, quantity } of answer.items) known.set(petId, quantity);
      for (const petId of removed) known.delete(petId);
      const now = new Map<bigint, number>();
      for await (const page of pagesOf(stock.store, 1_000))
        for (const { petId, quantity } of page) now.set(petId, quantity);
      expect(known).toEqual(now);
    });

    test("ends when its caller cancels, and the service goes on", async () => {
      await fillStock(stock, 5_000);
      const call = inventory.client.listInventory({});
      const next = messagesOf(call);
      await next();
      call.cancel();
      await expect(next()).rejects.toMatchObject({ code: status.CANCELLED });
      expect(await inventory.list()).toHaveLength(6);
    });
  });

  describe("CheckInventory", () => {
    test("answers with the entries that were changed, removed and created since a position", async () => {
      await fillStock(stock, 3);
      const at = await stock.store.position();
      await inventory.update({ petId: 1n, quantity: 50 });
      await inventory.remove({ petId: 2n });
      await inventory.create({ petId: 4n, quantity: 4, status: PET_STATUS_SOLD });
      await inventory.update({ petId: 1n, quantity: 51 });
      const stream = check();
      stream.send(at);
      expect(await stream.next()).toEqual({
        epoch: at.epoch,
        revision: 7n,
        items: [
          { petId: 2n, quantity: 1, status: PET_STATUS_AVAILABLE, revision: 5n, removed: true },
          { petId: 4n, quantity: 4, status: PET_STATUS_SOLD, revision: 6n, removed: false },
          { petId: 1n, quantity: 51, status: PET_STATUS_AVAILABLE, revision: 7n, removed: false },
        ],
        more: false,
        reset: false,
        floor: 0n,
      });
      stream.send({ ...at, revision: 7n });
      expect(await stream.next()).toMatchObject({ revision: 7n, items: [], reset: false });
    });

    test("answers many questions on one stream in order, including one with a reset", async () => {
      await fillStock(stock, 20);
      const { epoch } = await stock.store.position();
      const questions: CheckInventoryRequest[] = Array.from({ length: 30 }, (_, i) => ({ epoch, revision: BigInt(i) }));
      questions.splice(10, 0, { epoch: "another", revision: 5n });
      const stream = check();
      stream.send(...questions);
      for (const question of questions) {
        const answer = (await stream.next())!;
        const isReset = question.epoch !== epoch || question.revision > 20n;
        expect(answer).toMatchObject({ reset: isReset, more: false });
        if (!isReset) expect(answer.items.map(({ petId }) => petId)).toEqual(range(Number(question.revision) + 1, 20));
      }
    });

    test.each([
      [1_000, [1_000, 0]],
      [2_500, [1_000, 1_000, 500]],
    ])("answers with %i changes in messages of 1,000, all but the last with `more`", async (count, sizes) => {
      const at = await stock.store.position();
      await fillStock(stock, count);
      const stream = check();
      stream.send(at, { ...at, revision: BigInt(count) });
      const answers: CheckInventoryResponse[] = [];
      for (let i = 0; i <= sizes.length; i++) answers.push((await stream.next())!);
      expect(answers.map(({ items }) => items.length)).toEqual([...sizes, 0]);
      expect(answers.map(({ more }) => more)).toEqual([...sizes.map((_, i) => i < sizes.length - 1), false]);
      expect(answers.flatMap(({ items }) => items.map(({ petId }) => petId))).toEqual(range(1, count));
      expect(answers.at(-2)!.revision).toBe(BigInt(count));
    });

    test("answers with every change that was acknowledged before the question", async () => {
      await fillStock(stock, 3);
      let at: CheckInventoryRequest = await stock.store.position();
      const stream = check();
      for (let i = 0; i < 40; i++) {
        const { item } = await inventory.update({ petId: BigInt((i % 3) + 1), quantity: 1_000 + i });
        stream.send(at);
        const answer = (await stream.next())!;
        expect(answer.items).toContainEqual(item);
        at = { epoch: answer.epoch, revision: answer.revision };
      }
    });

    test("answers the last question, then ends when its caller ends the stream", async () => {
      const stream = check();
      stream.send(await stock.store.position());
      stream.call.end();
      expect(await stream.next()).toMatchObject({ reset: false });
      expect(await stream.next()).toBeUndefined();
    });
  });
});
