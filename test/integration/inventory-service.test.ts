import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { type ClientDuplexStream, type ClientReadableStream, ServerCredentials, status } from "@grpc/grpc-js";
import { protoPath } from "grpc-health-check";
import { createRpcServer } from "../../inventory-svc/grpc-server.ts";
import { inventoryHandlers } from "../../inventory-svc/rpc/handlers.ts";
import { type Reason, reasons } from "../../inventory-svc/rpc/rpc-error.ts";
import { ChangeFeed } from "../../inventory-svc/stock/change-feed.ts";
import { GroupCommit } from "../../inventory-svc/stock/group-commit.ts";
import { ListFeed } from "../../inventory-svc/stock/list-feed.ts";

import type { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import {
  type ChangeResult,
  type CheckInventoryRequest,
  type CheckInventoryResponse,
  InventoryServiceService,
  PetStatus,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { maxPetId, minPetId } from "../../proto/pet.ts";
import { createMysqlDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import {
  connectInventory,
  connectService,
  conversation,
  describeRefusal,
  type Inventory,
  messagesOf,
  refusalOf,
  statusOf,
} from "../support/grpc.ts";
import {
  failAdjustments,
  holdWriteLock,
  migrateStock,
  type OpenStock,
  openStock,
  pagesOf,
  untilRunning,
} from "../support/open-stock.ts";
import { cleanup, type RunningProcess, startProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";

const { PET_STATUS_UNSPECIFIED, PET_STATUS_AVAILABLE, PET_STATUS_PENDING, PET_STATUS_SOLD } = PetStatus;
const serviceName = "petstore.inventory.v1.InventoryService";

const startService = (url: string, env: Record<string, string> = {}): Promise<RunningProcess> =>
  startProcess({
    name: "inventory-svc",
    script: "inventory-svc/main.ts",
    env: {
      INVENTORY_LISTEN: "127.0.0.1:0",
      INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
      INVENTORY_DATABASE_URL: url,
      ...env,
    },
  });

type Groups = NonNullable<Parameters<ReturnType<Inventory["applyChanges"]>["send"]>[0]["groups"]>;
type Changes = NonNullable<Groups[number]["changes"]>;

/** Makes a group of changes of a caller that waits for longer than any stream lives. */
const group = (...changes: Changes): Groups[number] => ({ changes, deadlineMs: 60_000 });

/** What became of a change: its reason, or nothing, and the quantity that it left. */
const reduced = ({ item, refusal }: ChangeResult) => [refusal && describeRefusal(refusal).reason, item?.quantity];

describeEachDatabase("the inventory service over gRPC", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let service: RunningProcess;
  let inventory: Inventory;
  let stock: OpenStock;
  let store: StockStore;
  beforeAll(async () => {
    await migrateStock(url());
    stock = openStock(url());
    stack.defer(() => stock.close());
    store = stock.store;
    service = await startService(url());
    inventory = connectInventory(service.listen);
    stack.defer(() => inventory.close());
  });
  beforeEach(async () => {
    await stock.empty();
  });

  const position = () => store.position();
  const fill = (count: number) =>
    store.write(
      Array.from({ length: count }, (_, i) => ({
        kind: "create",
        petId: BigInt(i + 1),
        quantity: i,
        status: "available",
      })),
    );
  const check = () => {
    const stream = inventory.check();
    stack.defer(() => stream.call.cancel());
    return stream;
  };

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
      const start = await position();
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

  describe("refusals", () => {
    const sold = PET_STATUS_SOLD;
    const noEntry = "there is no entry with this pet_id";
    const required = "quantity is required";
    const bounds = "quantity must be from 0 to 2147483647";
    /** Entry 1 is at revision 1, and entry 2 is removed. */
    test.each<[string, () => Promise<unknown>, keyof typeof status, string]>([
      ["get of an unknown id", () => inventory.get({ petId: 9n }), "NOT_FOUND", noEntry],
      ["get of a removed entry", () => inventory.get({ petId: 2n }), "NOT_FOUND", noEntry],
      ["update of an unknown id", () => inventory.update({ petId: 9n, quantity: 1 }), "NOT_FOUND", noEntry],
      ["update of a removed entry", () => inventory.update({ petId: 2n, quantity: 1 }), "NOT_FOUND", noEntry],
      ["remove of an unknown id", () => inventory.remove({ petId: 9n }), "NOT_FOUND", noEntry],
      ["remove of a removed entry", () => inventory.remove({ petId: 2n }), "NOT_FOUND", noEntry],
      [
        "create of an existing entry",
        () => inventory.create({ petId: 1n, quantity: 5, status: sold }),
        "ALREADY_EXISTS",
        "there is an entry with this pet_id already",
      ],
      [
        "update at another revision",
        () => inventory.update({ petId: 1n, quantity: 5, expectedRevisions: [7n] }),
        "ABORTED",
        "the entry is at revision 1, not at one that is expected",
      ],
      [
        "update at none of several revisions",
        () => inventory.update({ petId: 1n, quantity: 5, expectedRevisions: [7n, 0n, 2n] }),
        "ABORTED",
        "the entry is at revision 1, not at one that is expected",
      ],
      [
        "update at 21 revisions",
        () =>
          inventory.update({
            petId: 1n,
            quantity: 5,
            expectedRevisions: Array.from({ length: 21 }, (_, i) => BigInt(i)),
          }),
        "INVALID_ARGUMENT",
        "expected_revisions must be at most 20",
      ],
      [
        "update at revision 0",
        () => inventory.update({ petId: 1n, quantity: 5, expectedRevisions: [0n] }),
        "ABORTED",
        "the entry is at revision 1, not at one that is expected",
      ],
      [
        "update of an unknown id at a revision",
        () => inventory.update({ petId: 9n, quantity: 5, expectedRevisions: [1n] }),
        "NOT_FOUND",
        noEntry,
      ],
      ["update without a quantity", () => inventory.update({ petId: 1n }), "INVALID_ARGUMENT", required],
      [
        "update to a negative quantity",
        () => inventory.update({ petId: 1n, quantity: -1 }),
        "INVALID_ARGUMENT",
        bounds,
      ],
      [
        "update of an unknown id without a quantity",
        () => inventory.update({ petId: 9n }),
        "INVALID_ARGUMENT",
        required,
      ],
      ["create without a quantity", () => inventory.create({ petId: 3n, status: sold }), "INVALID_ARGUMENT", required],
      [
        "create with a negative quantity",
        () => inventory.create({ petId: 3n, quantity: -2_147_483_648, status: sold }),
        "INVALID_ARGUMENT",
        bounds,
      ],
      [
        "create with an unknown status",
        () => inventory.create({ petId: 3n, quantity: 1, status: 9 as PetStatus }),
        "INVALID_ARGUMENT",
        "status must be a PetStatus",
      ],
      [
        "setStatus to an unknown status",
        () => inventory.setStatus({ petId: 1n, status: 9 as PetStatus }),
        "INVALID_ARGUMENT",
        "status must be a PetStatus",
      ],
      [
        "setStatus without a status",
        () => inventory.setStatus({ petId: 1n, status: PET_STATUS_UNSPECIFIED }),
        "INVALID_ARGUMENT",
        "status must be a PetStatus",
      ],
      ["setStatus of an unknown id", () => inventory.setStatus({ petId: 9n, status: sold }), "NOT_FOUND", noEntry],
      [
        "setStatus at another revision",
        () => inventory.setStatus({ petId: 1n, status: sold, expectedRevision: 2n }),
        "ABORTED",
        "the entry is at revision 1, not at one that is expected",
      ],
      [
        "adjustment without a delta",
        () => inventory.adjust({ petId: 1n, requestId: "a" }),
        "INVALID_ARGUMENT",
        "delta is required",
      ],
      [
        "adjustment by 0",
        () => inventory.adjust({ petId: 1n, delta: 0, requestId: "a" }),
        "INVALID_ARGUMENT",
        "delta must not be 0",
      ],
      ...["", "a b", "a/b", "é", "a\n", "x".repeat(65)].map(
        (requestId): [string, () => Promise<unknown>, keyof typeof status, string] => [
          `adjustment under the request id ${JSON.stringify(requestId)}`,
          () => inventory.adjust({ petId: 1n, delta: 1, requestId }),
          "INVALID_ARGUMENT",
          "request_id must be 1 to 64 of A-Z a-z 0-9 _ . : -",
        ],
      ),
      ...["", "a b", "x".repeat(65)].map(
        (idempotencyKey): [string, () => Promise<unknown>, keyof typeof status, string] => [
          `update under the key ${JSON.stringify(idempotencyKey)}`,
          () => inventory.update({ petId: 1n, quantity: 1, idempotencyKey }),
          "INVALID_ARGUMENT",
          "idempotency_key must be 1 to 64 of A-Z a-z 0-9 _ . : -",
        ],
      ),
      [
        "adjustment of an unknown id",
        () => inventory.adjust({ petId: 9n, delta: 1, requestId: "a" }),
        "NOT_FOUND",
        noEntry,
      ],
      [
        "adjustment of a removed entry",
        () => inventory.adjust({ petId: 2n, delta: 1, requestId: "a" }),
        "NOT_FOUND",
        noEntry,
      ],
      [
        "adjustment to a negative quantity",
        () => inventory.adjust({ petId: 1n, delta: -5, requestId: "a" }),
        "FAILED_PRECONDITION",
        "there are only 4 left",
      ],
      [
        "adjustment by the lowest int32",
        () => inventory.adjust({ petId: 1n, delta: -2_147_483_648, requestId: "a" }),
        "FAILED_PRECONDITION",
        "there are only 4 left",
      ],
      [
        "adjustment to more than the maximum",
        () => inventory.adjust({ petId: 1n, delta: 2_147_483_644, requestId: "a" }),
        "OUT_OF_RANGE",
        "there are 4 already, and no more than 2147483647 may be",
      ],
      [
        "batchGet of more than 1,000 ids",
        () => inventory.batchGet({ petIds: idsFrom(1, 1_001) }),
        "INVALID_ARGUMENT",
        "pet_ids must be at most 1000",
      ],
    ])("%s is refused with its reason and changes nothing", async (_what, call, code, details) => {
      await store.write([
        { kind: "create", petId: 1n, quantity: 4, status: "available" },
        { kind: "create", petId: 2n, quantity: 4, status: "available" },
        { kind: "remove", petId: 2n },
      ]);
      await expect(call()).rejects.toMatchObject({ code: status[code], details });
      const { reason, domain, fields, resource, retryDelayMs } = await refusalOf(call());
      expect(status[reasons[reason as Reason]]).toBe(code);
      expect(domain).toBe("petstore.inventory.v1");
      expect(fields !== undefined).toBe(code === "INVALID_ARGUMENT");
      expect(resource !== undefined).toBe(code === "NOT_FOUND" || code === "ALREADY_EXISTS");
      expect(retryDelayMs).toBeUndefined(); // the same call would be refused again
      expect(await store.position()).toMatchObject({ revision: 3n });
      const listed = (await inventory.list()).flatMap(({ items }) => items);
      expect(listed.filter(({ removed }) => !removed)).toEqual([
        { petId: 1n, quantity: 4, status: PET_STATUS_AVAILABLE, revision: 1n, removed: false },
      ]);
    });
  });

  test.each<[Reason, () => Promise<unknown>, object]>([
    [
      "INVALID_FIELD",
      () => inventory.update({ petId: 1n, quantity: -1 }),
      { metadata: { field: "quantity" }, fields: ["quantity"] },
    ],
    [
      "REQUEST_ID_REUSED",
      () => inventory.adjust({ petId: 1n, delta: 2, requestId: "once" }),
      { metadata: { request_id: "once" }, fields: ["request_id"] },
    ],
    [
      "KEY_REUSED",
      () => inventory.update({ petId: 1n, quantity: 6, idempotencyKey: "k" }),
      { metadata: { pet_id: "1" }, fields: ["idempotency_key"] },
    ],
    [
      "ENTRY_NOT_FOUND",
      () => inventory.get({ petId: minPetId }),
      { metadata: { pet_id: String(minPetId) }, resource: `petstore.inventory.v1.InventoryItem ${minPetId}` },
    ],
    [
      "ENTRY_EXISTS",
      () => inventory.create({ petId: 1n, quantity: 1, status: PET_STATUS_SOLD }),
      { metadata: { pet_id: "1" }, resource: "petstore.inventory.v1.InventoryItem 1" },
    ],
    [
      "REVISION_MISMATCH",
      () => inventory.update({ petId: 1n, quantity: 1, expectedRevisions: [1n] }),
      { metadata: { pet_id: "1", revision: "2" } },
    ],
    [
      "INSUFFICIENT_STOCK",
      () => inventory.adjust({ petId: 1n, delta: -6, requestId: "other" }),
      { metadata: { pet_id: "1", revision: "2", quantity: "5" } },
    ],
    [
      "QUANTITY_OVERFLOW",
      () => inventory.adjust({ petId: 1n, delta: 2_147_483_647, requestId: "other" }),
      { metadata: { pet_id: "1", revision: "2", quantity: "5" } },
    ],
  ])("the details of the error %s name what it concerns", async (reason, call, details) => {
    await inventory.create({ petId: 1n, quantity: 4, status: PET_STATUS_SOLD });
    await inventory.adjust({ petId: 1n, delta: 1, requestId: "once" });
    await inventory.update({ petId: 1n, quantity: 5, idempotencyKey: "k" });
    expect(await refusalOf(call())).toEqual({
      code: status[reasons[reason]],
      reason,
      domain: "petstore.inventory.v1",
      metadata: {},
      fields: undefined,
      resource: undefined,
      retryDelayMs: undefined,
      ...details,
    });
  });

  test("an update with an idempotency key happens once, and its repeat gets the first result", async () => {
    await fill(2);
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
    test("SetStatus sets any status after any other under a new revision, and takes no revision when the status stays", async () => {
      await inventory.create({ petId: 7n, quantity: 3, status: PET_STATUS_SOLD });
      let revision = 1n;
      const all = [PET_STATUS_AVAILABLE, PET_STATUS_PENDING, PET_STATUS_SOLD];
      for (const to of [...all, ...all.toReversed().slice(1), PET_STATUS_SOLD]) {
        const item = { petId: 7n, quantity: 3, status: to, revision: revision + 1n, removed: false };
        expect(await inventory.setStatus({ petId: 7n, status: to, expectedRevision: revision })).toEqual({ item });
        expect(await inventory.setStatus({ petId: 7n, status: to })).toEqual({ item }); // changes nothing
        revision += 1n;
      }
      expect(await position()).toMatchObject({ revision });
    });
  });

  describe("BatchGetInventoryItems", () => {
    test("BatchGetInventoryItems returns each existing entry and each missing id once, in the order of the request", async () => {
      await fill(4);
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

    test("BatchGetInventoryItems accepts an empty list of ids, and 1,000 different ids", async () => {
      await fill(999);
      expect(await inventory.batchGet({ petIds: [] })).toEqual({ items: [], missingPetIds: [] });
      const { items, missingPetIds } = await inventory.batchGet({ petIds: [...idsFrom(1, 1_000), 1n] });
      expect(items.map(({ petId }) => petId)).toEqual(idsFrom(1, 999));
      expect(missingPetIds).toEqual([1_000n]);
    });
  });

  describe("ListInventory", () => {
    test("ListInventory returns the position of an empty stock", async () => {
      expect(await inventory.list()).toEqual([{ items: [], ...(await position()) }]);
    });

    test("ListInventory returns each of 5,000 entries once, in the order of petId, in batches that all have the position", async () => {
      await fill(4_998);
      for (const petId of [maxPetId, minPetId]) await inventory.create({ petId, quantity: 1, status: PET_STATUS_SOLD });
      const batches = await inventory.list();
      const ids = batches.flatMap(({ items }) => items).map(({ petId }) => petId);
      expect(ids).toHaveLength(5_000);
      expect(ids).toEqual([minPetId, ...Array.from({ length: 4_998 }, (_, i) => BigInt(i + 1)), maxPetId]);
      const { epoch, revision } = await position();
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

    test("ListInventory leaves no gap: each change made while it is read is in the list or follows its position", async () => {
      await fill(2_500);
      // The same service in this process. With each page that it reads, one entry changes and another is removed.
      const changing = {
        position: () => store.position(),
        async rowsAfter(after: bigint | undefined, limit: number) {
          const rows = await store.rowsAfter(after, limit);
          const [first, second] = rows.map(({ petId }) => petId) as [bigint, bigint];
          await store.write([
            { kind: "update", petId: first, quantity: 77_777 },
            { kind: "remove", petId: second },
          ]);
          return rows;
        },
      };
      const commits = new GroupCommit({
        write: (requests) => store.writeWanted(requests),
        maxBatch: 100,
        maxQueued: 100,
        onDequeued: () => {},
        onWritten: () => {},
        now: () => performance.now(),
      });
      const server = createRpcServer({
        handlers: inventoryHandlers({
          store,
          lists: new ListFeed(changing, 1_000),
          commits,
          feed: new ChangeFeed((from) => store.changesAfter(from, 100)),
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
      for await (const page of pagesOf(store, 1_000)) for (const { petId, quantity } of page) now.set(petId, quantity);
      expect(known).toEqual(now);
    });

    test("ListInventory ends when its caller cancels, and the service goes on", async () => {
      await fill(5_000);
      const call = inventory.client.listInventory({});
      const next = messagesOf(call);
      await next();
      call.cancel();
      await expect(next()).rejects.toMatchObject({ code: status.CANCELLED });
      expect(await inventory.list()).toHaveLength(6);
    });
  });

  describe("CheckInventory", () => {
    test("CheckInventory answers with the entries that were changed, removed and created since a position", async () => {
      await fill(3);
      const at = await position();
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

    test("CheckInventory answers many questions on one stream in order, including one with a reset", async () => {
      await fill(20);
      const { epoch } = await position();
      const questions: CheckInventoryRequest[] = Array.from({ length: 30 }, (_, i) => ({ epoch, revision: BigInt(i) }));
      questions.splice(10, 0, { epoch: "another", revision: 5n });
      const stream = check();
      stream.send(...questions);
      for (const question of questions) {
        const answer = (await stream.next())!;
        const isReset = question.epoch !== epoch || question.revision > 20n;
        expect(answer).toMatchObject({ reset: isReset, more: false });
        if (!isReset)
          expect(answer.items.map(({ petId }) => petId)).toEqual(idsFrom(Number(question.revision) + 1, 20));
      }
    });

    test.each([
      [1_000, [1_000, 0]],
      [2_500, [1_000, 1_000, 500]],
    ])(
      "CheckInventory answers with %i changes in messages of 1,000, all but the last with `more`",
      async (count, sizes) => {
        const at = await position();
        await fill(count);
        const stream = check();
        stream.send(at, { ...at, revision: BigInt(count) });
        const answers: CheckInventoryResponse[] = [];
        for (let i = 0; i <= sizes.length; i++) answers.push((await stream.next())!);
        expect(answers.map(({ items }) => items.length)).toEqual([...sizes, 0]);
        expect(answers.map(({ more }) => more)).toEqual([...sizes.map((_, i) => i < sizes.length - 1), false]);
        expect(answers.flatMap(({ items }) => items.map(({ petId }) => petId))).toEqual(idsFrom(1, count));
        expect(answers.at(-2)!.revision).toBe(BigInt(count));
      },
    );

    test("CheckInventory answers with every change that was acknowledged before the question", async () => {
      await fill(3);
      let at: CheckInventoryRequest = await position();
      const stream = check();
      for (let i = 0; i < 40; i++) {
        const { item } = await inventory.update({ petId: BigInt((i % 3) + 1), quantity: 1_000 + i });
        stream.send(at);
        const answer = (await stream.next())!;
        expect(answer.items).toContainEqual(item);
        at = { epoch: answer.epoch, revision: answer.revision };
      }
    });

    test("CheckInventory answers the last question, then ends when its caller ends the stream", async () => {
      const stream = check();
      stream.send(await position());
      stream.call.end();
      expect(await stream.next()).toMatchObject({ reset: false });
      expect(await stream.next()).toBeUndefined();
    });
  });

  describe("ApplyChanges", () => {
    /** Sends one request on a stream of its own. @returns its results */
    async function apply(...groups: Groups): Promise<ChangeResult[]> {
      const stream = inventory.applyChanges();
      stream.send({ groups });
      const { results } = (await stream.next())!;
      stream.call.end();
      return results;
    }

    test("ApplyChanges gives every change a result of its own, in the order of the request", async () => {
      await fill(3);
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

    test("ApplyChanges refuses a request of more than 1,000 changes, and a group without any", async () => {
      expect(await apply(group())).toEqual([]);
      const hundred = group(...Array.from({ length: 100 }, () => ({ petId: 1n, quantity: 1 })));
      for (const groups of [Array(11).fill(hundred), Array(1_001).fill(group())]) {
        await expect(apply(...groups)).rejects.toThrow("groups must have at most 1000 changes");
      }
    });

    test("ApplyChanges refuses a change with the details of a call", async () => {
      const [result] = await apply(group({ petId: 9n, quantity: 1 }));
      const refusal = await refusalOf(inventory.update({ petId: 9n, quantity: 1 }));
      expect(describeRefusal(result!.refusal!)).toEqual(refusal);
    });

    test("ApplyChanges makes an adjustment once for each request id, as AdjustInventory does", async () => {
      await fill(9);
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

    const keyed = (fingerprint: string, ...entries: readonly (readonly [petId: bigint, quantity: number])[]) => ({
      ...group(...entries.map(([petId, quantity]) => ({ petId, quantity }))),
      idempotencyKey: { account: "acme", key: "k", fingerprint },
    });

    test("ApplyChanges makes keyed updates once, also of two groups, and says what is replayed", async () => {
      await fill(3);
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

    test("ApplyChanges makes none of a group's keyed updates when one meets the record of another", async () => {
      await fill(3);
      await apply(keyed("x", [2n, 20]));
      const before = await position();
      const results = await apply(keyed("y", [1n, 10], [2n, 20], [3n, 30]));
      expect(results.map(reduced)).toEqual(Array(3).fill(["KEY_REUSED", undefined]));
      expect(await position()).toEqual(before);
    });

    test("ApplyChanges shares keys of no account with UpdateInventory, and keeps accounts apart", async () => {
      await fill(1);
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
      ["the number", () => keyed("x", ...idsFrom(1, 101).map((petId) => [petId, 1] as const))],
    ])("ApplyChanges refuses all keyed updates of a group for a fault in %s", async (_what, wrong) => {
      await fill(2);
      const request = wrong(keyed("x", [1n, 10], [2n, 20]));
      const results = await apply(request);
      expect(results.map(reduced)).toEqual(Array(request.changes!.length).fill(["INVALID_FIELD", undefined]));
      expect(await position()).toMatchObject({ revision: 2n });
    });

    test.each<[string, Changes[number]]>([
      ["a quantity and a delta", { petId: 1n, quantity: 1, delta: 1, requestId: "r" }],
      ["neither a quantity nor a delta", { petId: 1n }],
      ["a delta without a request id", { petId: 1n, delta: 1 }],
      ["a delta of 0", { petId: 1n, delta: 0, requestId: "r" }],
      ["21 revisions", { petId: 1n, quantity: 1, expectedRevisions: idsFrom(1, 21) }],
    ])("ApplyChanges refuses a change with %s", async (_what, change) => {
      await fill(1);
      expect((await apply(group(change))).map(reduced)).toEqual([["INVALID_FIELD", undefined]]);
      expect(await position()).toMatchObject({ revision: 1n });
    });

    test("ApplyChanges answers requests that are sent at once in order, and applies each once", async () => {
      await fill(100);
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
      expect(items.map(({ revision }) => revision)).toEqual(idsFrom(101, 2_100));
      expect(await position()).toMatchObject({ revision: 2_100n });
      expect(await stream.next()).toBeUndefined();
    });
  });

  test("a database failure is UNAVAILABLE to every caller, without its cause, until the database works again", async () => {
    await fill(1);
    const at = await position();
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

  test("an adjustment that failed can be repeated, and its outcome is unknown where COMMIT was sent with it", async () => {
    await fill(1);
    // The last statement before the commit fails. On MySQL it shares a packet with the commit.
    const restore = await failAdjustments(stock.db);
    const adjustment = { petId: 1n, delta: 5, requestId: "a" };
    const refusal = await refusalOf(inventory.adjust(adjustment));
    await restore();
    const reason = url().startsWith("sqlite:") ? "STOCK_UNAVAILABLE" : "OUTCOME_UNKNOWN";
    expect(refusal).toMatchObject({ code: "UNAVAILABLE", reason, retryDelayMs: 500 });
    expect(await inventory.adjust(adjustment)).toMatchObject({ item: { quantity: 5 }, replayed: false });
  });

  describe("the health service", () => {
    interface Health {
      check(request: object, done: (error: Error | null, response: { status: string }) => void): void;
      watch(request: object): ClientReadableStream<{ status: string }>;
    }
    const connect = () => {
      const client = connectService<Health>(protoPath, "grpc.health.v1.Health", service.listen);
      stack.defer(() => client.close());
      return client;
    };

    test.each([
      ["", "SERVING"],
      [serviceName, "SERVING"],
      ["petstore.Other", "NOT_FOUND"],
    ])("the health service answers Check of %p with %s", async (name, expected) => {
      const client = connect();
      const answer = new Promise<{ status: string }>((resolve, reject) =>
        client.check({ service: name }, (error, response) => (error ? reject(error) : resolve(response))),
      );
      const result = await answer.then(
        ({ status }) => status,
        () => statusOf(answer),
      );
      expect(result).toBe(expected);
    });

    test.each([
      ["", "SERVING"],
      [serviceName, "SERVING"],
      ["petstore.Other", "SERVICE_UNKNOWN"],
    ])("the health service begins Watch of %p with %s", async (name, expected) => {
      const call = connect().watch({ service: name });
      expect(await messagesOf(call)()).toEqual({ status: expected });
      call.cancel();
    });
  });

  describe.each(["v1", "v1alpha"])("server reflection %s", (version) => {
    interface Answer {
      listServicesResponse?: { service: { name: string }[] };
      fileDescriptorResponse?: { fileDescriptorProto: Uint8Array[] };
      errorResponse?: { errorCode: number };
    }
    interface Reflection {
      serverReflectionInfo(): ClientDuplexStream<object, Answer>;
    }
    const ask = async (question: object): Promise<Answer> => {
      const installed = dirname(createRequire(import.meta.url).resolve("@grpc/reflection"));
      const protoFile = join(installed, `../proto/grpc/reflection/${version}/reflection.proto`);
      const client = connectService<Reflection>(
        protoFile,
        `grpc.reflection.${version}.ServerReflection`,
        service.listen,
      );
      const stream = conversation(client.serverReflectionInfo());
      stream.send(question);
      const answer = (await stream.next())!;
      stream.call.cancel();
      client.close();
      return answer;
    };

    test(`server reflection ${version} lists the services`, async () => {
      const { listServicesResponse } = await ask({ listServices: "" });
      expect(listServicesResponse!.service.map(({ name }) => name)).toContain(serviceName);
    });

    test.each([serviceName, `${serviceName}.UpdateInventory`, "petstore.inventory.v1.InventoryItem"])(
      `server reflection ${version} describes %s with all methods and fields`,
      async (symbol) => {
        const { fileDescriptorResponse } = await ask({ fileContainingSymbol: symbol });
        const files = fileDescriptorResponse!.fileDescriptorProto.map((bytes) =>
          fromBinary(FileDescriptorProtoSchema, bytes),
        );
        const { service: services, messageType } = files.find(({ package: name }) => name === "petstore.inventory.v1")!;
        expect(services[0]!.method.map(({ name }) => `/${serviceName}/${name}`)).toEqual(
          Object.values(InventoryServiceService).map(({ path }) => path),
        );
        const item = messageType.find(({ name }) => name === "InventoryItem")!;
        expect(item.field.map(({ name }) => name)).toEqual(["pet_id", "quantity", "status", "revision", "removed"]);
      },
    );

    test(`server reflection ${version} describes the types of error details`, async () => {
      const { fileDescriptorResponse } = await ask({ fileContainingSymbol: "google.rpc.ErrorInfo" });
      const names = fileDescriptorResponse!.fileDescriptorProto.flatMap((bytes) =>
        fromBinary(FileDescriptorProtoSchema, bytes).messageType.map(({ name }) => name),
      );
      expect(names).toEqual(expect.arrayContaining(["ErrorInfo", "BadRequest", "RetryInfo", "ResourceInfo"]));
    });

    test(`server reflection ${version} answers NOT_FOUND for an unknown symbol`, async () => {
      expect(await ask({ fileContainingSymbol: "petstore.Other" })).toMatchObject({
        errorResponse: { errorCode: status.NOT_FOUND },
      });
    });
  });

  function idsFrom(first: number, last: number): bigint[] {
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => BigInt(first + i));
  }
});

describe("callers (MySQL/MariaDB)", () => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let url: string;
  let inventory: Inventory;
  let stock: OpenStock;
  beforeAll(async () => {
    url = await createMysqlDatabase();
    stack.defer(() => dropDatabase(url));
    await migrateStock(url);
    stock = openStock(url);
    stack.defer(() => stock.close());
    const service = await startService(url, { INVENTORY_MAX_QUEUED: "2" });
    inventory = connectInventory(service.listen);
    stack.defer(() => inventory.close());
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
