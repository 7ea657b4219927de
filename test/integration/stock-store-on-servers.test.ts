import { writeFile } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { StockUnavailableError } from "../../inventory-svc/stock/stock-errors.ts";
import { StockHistory } from "../../inventory-svc/stock/stock-history.ts";
import type { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { type Item, maxPetId, maxQuantity, minPetId, type Position } from "../../proto/pet.ts";
import { databaseDefaults } from "../../runtime/database/open.ts";
import { createMysqlDatabase, createSqliteDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { type OpenStock, openMigratedStock, openStock, pagesOf, sqliteFile } from "../support/open-stock.ts";
import { freePort } from "../support/ports.ts";
import { cleanup } from "../support/processes.ts";
import { type Stack, suiteStack } from "../support/stack.ts";
import {
  allPages,
  create,
  follow,
  kinds,
  noteStatements,
  petIds,
  range,
  remove,
  runWriters,
  update,
  withoutRemoved,
} from "../support/stock-changes.ts";
import {
  emptyModel,
  groupOf,
  outcomeKinds,
  type PlannedGroup,
  perform,
  plan,
  settleGroup,
} from "../support/stock-model.ts";

describeEachDatabase("the stock's store", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let stock: OpenStock;
  let store: StockStore;
  let start: Position;
  beforeAll(async () => {
    stock = await openMigratedStock(stack, url());
    store = stock.store;
  });
  beforeEach(async () => {
    await stock.empty();
    start = await store.position();
  });

  test("a new stock is empty and at revision 0 of an epoch of its own", async () => {
    expect(start).toEqual({ epoch: expect.stringMatching(/^[0-9a-f-]{36}$/), revision: 0n });
    expect(await allPages(store, 10)).toEqual([]);
    expect(await store.changesAfter(start, 10)).toEqual({
      kind: "changes",
      position: start,
      floor: 0n,
      rows: [],
      more: false,
    });
  });

  test("reads of changes after many positions leave connections to writes", async () => {
    const revisions = Array.from({ length: 40 }, (_, i) => BigInt(-1 - i));
    const reads = revisions.map((revision) => store.changesAfter({ ...start, revision }, 10));
    let isOver = false;
    const all = Promise.all(reads).finally(() => {
      isOver = true;
    });
    let most = 0;
    for (; !isOver; most = Math.max(most, stock.db.client.pool.numUsed())) await setImmediate();
    expect(await all).toEqual(revisions.map(() => ({ kind: "reset" })));
    expect(most).toBeLessThanOrEqual(4); // one reads the head
  });

  test.each([minPetId, minPetId + 1n, -(2n ** 53n) - 1n, -1n, 0n, 1n, 2n ** 53n + 1n, maxPetId - 1n, maxPetId])(
    "petId %s comes back exactly from every read",
    async (petId) => {
      await store.write([create(petId, maxQuantity), create(0n)]);
      const item = { petId, quantity: maxQuantity, status: "available", revision: 1n };
      expect(await store.get(petId)).toMatchObject(item);
      expect([...(await store.getMany([petId, 99n])).entries()]).toEqual([[petId, expect.objectContaining(item)]]);
      expect(await allPages(store, 10)).toContainEqual(expect.objectContaining(item));
      expect((await follow(store, start, 10)).flatMap(({ rows }) => rows)).toContainEqual({ ...item, removed: false });
      expect(kinds(await store.write([create(petId), update(petId, 0), remove(petId)]))).toEqual([
        "already_exists",
        "done",
        "done",
      ]);
      expect(await store.get(petId)).toBeUndefined();
      expect(await store.getMany([petId])).toEqual(new Map());
    },
  );

  test("revisions stay exact beyond 2^53, up to the last int64", async () => {
    await stock.db("stock_head").update({ revision: maxPetId - 2n });
    await store.write([create(1n), create(2n)]);
    expect(await store.position()).toEqual({ ...start, revision: maxPetId });
    expect(await store.get(1n)).toMatchObject({ revision: maxPetId - 1n });
    const from = { ...start, revision: maxPetId - 1n };
    expect(await store.changesAfter(from, 10)).toMatchObject({
      position: { revision: maxPetId },
      rows: [{ petId: 2n }],
    });
  });

  test.each([1, 2, 4, 8, 9])("pages of %i entries give every entry once, in the order of petId", async (pageSize) => {
    const ids = [minPetId, minPetId + 1n, -5n, -1n, 0n, 1n, maxPetId - 1n, maxPetId];
    await store.write([...ids.toReversed().map((petId) => create(petId)), create(3n), remove(3n)]);
    expect(petIds(await allPages(store, pageSize))).toEqual(ids);
  });

  test("pages give every entry that stays once and in order, whatever is written between them", async () => {
    const stays = [...range(-20, -11), ...range(11, 20)];
    const goes = range(-10, 10);
    await store.write([...stays, ...goes].map((petId) => create(petId)));
    const seen: Item[] = [];
    let turn = 0;
    for await (const page of pagesOf(store, 4)) {
      seen.push(...page);
      // Entries that the reader has passed, entries ahead of it, and the one where it is.
      const at = page.at(-1)!.petId;
      const gone = goes.filter((petId) => petId > at).slice(0, 1);
      const changes = [create(-1_000n - BigInt(turn)), create(1_000n + BigInt(turn)), update(11n, 100 + turn)];
      await store.write([...changes, ...gone.map(remove)]);
      if (++turn === 12) break; // entries ahead appear as fast as they are read
    }
    const ids = petIds(seen);
    expect(ids).toEqual([...new Set(ids)].sort((a, b) => (a < b ? -1 : 1)));
    expect(ids).toEqual(expect.arrayContaining(stays));
    expect(seen.find(({ petId }) => petId === 11n)!.quantity).toBeGreaterThan(100);
    expect(ids).not.toContain(-10n); // removed before its page was read
  });

  test("the changes after a position are the latest states by revision, removals included", async () => {
    await store.write([create(1n), create(2n), create(3n)]);
    const position = await store.position();
    await store.write([update(1n, 5), remove(2n), create(4n), update(1n, 6)]);
    expect(await store.changesAfter(position, 10)).toEqual({
      kind: "changes",
      position: { epoch: start.epoch, revision: 7n },
      floor: 0n,
      rows: [
        { petId: 2n, quantity: 1, status: "available", revision: 5n, removed: true },
        { petId: 4n, quantity: 1, status: "available", revision: 6n, removed: false },
        { petId: 1n, quantity: 6, status: "available", revision: 7n, removed: false },
      ],
      more: false,
    });
  });

  test.each([
    [10, 3, [3, 3, 3, 1]],
    [9, 3, [3, 3, 3, 0]],
    [10, 100, [10]],
  ])("%i changes come in pages of %i, with `more` on all but the last", async (count, limit, sizes) => {
    await store.write(range(1, count).map((petId) => create(petId)));
    const pages = await follow(store, start, limit);
    expect(pages.map(({ rows }) => rows.length)).toEqual(sizes);
    expect(pages.map(({ more }) => more)).toEqual(sizes.map((_, i) => i < sizes.length - 1));
    expect(petIds(pages.flatMap(({ rows }) => rows))).toEqual(range(1, count));
    expect(pages.at(-1)!.position).toEqual({ ...start, revision: BigInt(count) });
  });

  test.each([
    ["another epoch", { epoch: "another", revision: 1n }],
    ["no epoch", { epoch: "", revision: 0n }],
    ["a revision that does not exist yet", { revision: 3n }],
    ["the last int64", { revision: maxPetId }],
  ])("a position with %s gives a reset", async (_what, position) => {
    await store.write([create(1n), create(2n)]);
    expect(await store.changesAfter({ ...start, ...position }, 10)).toEqual({ kind: "reset" });
  });

  test("a batch of 1,201 changes is written whole, and one that changes nothing takes no revision", async () => {
    const changes = range(1, 1_201).map((petId) => create(petId, Number(petId)));
    const outcomes = await store.write(changes);
    expect(outcomes).toHaveLength(1_201);
    expect(outcomes.every((outcome, i) => outcome.kind === "done" && outcome.item.revision === BigInt(i + 1))).toBe(
      true,
    );
    expect(await allPages(store, 1_000)).toEqual(
      outcomes.map((outcome) => ("item" in outcome ? { ...outcome.item } : 0)),
    );
    expect(new Set(kinds(await store.write(changes)))).toEqual(new Set(["already_exists"]));
    await store.write(range(1, 1_201).map((petId) => update(petId, Number(petId))));
    expect(await store.position()).toEqual({ ...start, revision: 1_201n });
  });

  test("a removed entry can be made again", async () => {
    await store.write([create(1n, 5), remove(1n)]);
    await store.write([create(1n, 6)]);
    expect(await store.get(1n)).toMatchObject({ quantity: 6, revision: 3n });
    expect(await allPages(store, 10)).toHaveLength(1);
    const [page] = await follow(store, start, 10);
    expect(page!.rows).toEqual([expect.objectContaining({ petId: 1n, quantity: 6, revision: 3n, removed: false })]);
  });

  test("commit order is revision order: a reader of one has seen all before, with three writers", async () => {
    const transaction = 7;
    const each = 60 * transaction;
    let over = false;
    const writing = runWriters(
      url(),
      [0, 1, 2].map((i) => ["create", `${i * each}`, `${each}`, `${transaction}`]),
    ).finally(() => {
      over = true;
    });
    const states = new Set<bigint>();
    const seen: bigint[] = [];
    let position = start;
    for (let last = false; !last; ) {
      last = over;
      const changes = await store.changesAfter(position, 50);
      if (changes.kind === "reset") throw new Error("the position was refused");
      // Each entry is written once, so each revision has a row: none may be missing, and none may come late.
      const expected = changes.rows.map((_, i) => position.revision + 1n + BigInt(i));
      expect(changes.rows.map(({ revision }) => revision)).toEqual(expected);
      expect(changes.position).toEqual({ ...start, revision: expected.at(-1) ?? position.revision });
      if (!changes.more) {
        states.add(changes.position.revision);
        // A transaction is visible as a whole or not at all.
        expect(changes.position.revision % BigInt(transaction)).toBe(0n);
      }
      last &&= !changes.more;
      seen.push(...petIds(changes.rows));
      position = changes.position;
      await setImmediate();
    }
    expect(await writing).toEqual(Array(3).fill({ done: each }));
    expect(seen.toSorted((a, b) => Number(a - b))).toEqual(range(0, 3 * each - 1));
    expect(states.size).toBeGreaterThan(3); // it has read while they were writing
  });

  test("callers that ask together share one read of the head, and a page for each position", async () => {
    await store.write([create(1n), create(2n)]);
    const at = await store.position();
    const sent = noteStatements(stock.db);
    const ask = (position: Position) => store.changesAfter(position, 10);
    const unchanged = await Promise.all([ask(at), ask(at), ask(at), store.position()]);
    expect(unchanged).toEqual([
      ...Array(3).fill({ kind: "changes", position: at, floor: 0n, rows: [], more: false }),
      at,
    ]);
    expect(sent).toHaveLength(1);
    await store.write([update(1n, 5)]);
    sent.length = 0;
    const [first, second, third, reset] = await Promise.all([ask(at), ask(at), ask(start), ask({ ...at, epoch: "x" })]);
    expect(sent).toHaveLength(3); // the head tells of another epoch
    expect(first).toMatchObject({ kind: "changes", position: { revision: 3n }, rows: [{ petId: 1n, quantity: 5 }] });
    expect(second).toBe(first);
    expect(third).toMatchObject({ rows: [{ petId: 2n }, { petId: 1n }] });
    expect(reset).toEqual({ kind: "reset" });
  });

  test("a caller that asks for the position during a read of it gets one that is read afterwards", async () => {
    const read = Promise.withResolvers<void>();
    stock.db.once("query", () => read.resolve());
    const early = store.position();
    await read.promise;
    const sent = noteStatements(stock.db);
    const late = store.position();
    await early;
    await late;
    expect(sent).toHaveLength(1);
  });

  test("no update is lost when writers compete with expected revisions", async () => {
    await store.write([create(1n, 0)]);
    const results = await runWriters(url(), Array(3).fill(["increment", "1", "50"]));
    expect(results.map(({ done }) => done)).toEqual([50, 50, 50]);
    expect(results.reduce((sum, { refused }) => sum + refused!, 0)).toBeGreaterThan(0); // they did compete
    expect(await store.get(1n)).toMatchObject({ quantity: 150, revision: 151n });
    expect(await store.position()).toMatchObject({ revision: 151n });
  });

  test("batches of any changes over two replicas equal one change at a time on plain maps", async () => {
    const other = openStock(url());
    stack.defer(() => other.close());
    const kindsSeen = new Set<string>();
    const turn = fc.record({
      replica: fc.constantFrom(stock, other),
      batch: fc.array(groupOf(plan), { minLength: 1, maxLength: 12 }),
    });
    const check = async (turns: { replica: OpenStock; batch: PlannedGroup[] }[]) => {
      await stock.empty();
      const beginning = await store.position();
      const model = emptyModel(0n);
      for (const { replica, batch } of turns) {
        const expected = batch.map((plans) => {
          const group = settleGroup(plans, model);
          return { group, outcomes: perform(model, group) };
        });
        const requests = expected.map(({ group }) => ({ group, isWanted: () => true }));
        const outcomes = [...(await replica.store.writeWanted(requests)).values()].flat();
        expect(withoutRemoved(outcomes)).toEqual(withoutRemoved(expected.flatMap((each) => each.outcomes)));
        for (const { kind } of outcomes) kindsSeen.add(kind);
      }
      const rows = (await follow(store, beginning, 100)).flatMap((page) => page.rows);
      expect(new Map(rows.map((row) => [row.petId, row]))).toEqual(model.rows);
      expect(await store.position()).toMatchObject({ revision: model.revision });
      const ids: string[] = await stock.db("stock_ledger").whereNotNull("once_id").pluck("once_id");
      expect(ids.sort()).toEqual([...model.records.keys()].sort());
    };
    await fc.assert(fc.asyncProperty(fc.array(turn, { maxLength: 24 }), check), { numRuns: 120 });
    expect([...kindsSeen].sort()).toEqual(outcomeKinds);
  });

  describe("two replicas", () => {
    let other: OpenStock;
    beforeAll(() => {
      other = openStock(url());
      stack.defer(() => other.close());
    });

    test("a write meets the entries as another replica has left them", async () => {
      await store.write([create(1n, 5), create(2n, 5)]);
      await other.store.write([update(1n, 60)]);
      expect(await store.write([{ kind: "update", petId: 1n, status: "sold" }, update(2n, 8)])).toMatchObject([
        { kind: "done", item: { quantity: 60, status: "sold", revision: 4n } },
        { kind: "done", item: { quantity: 8, revision: 5n } },
      ]);
      await other.store.write([remove(1n)]);
      expect(kinds(await store.write([update(1n, 1)]))).toEqual(["not_found"]);
    });

    test.each([
      ["before", 2n],
      ["after", 4_102_444_800_000_000n], // 2100, in microseconds
    ])("no revision is used again after a restore, with a head %s the time of the clock", async (_when, backup) => {
      const used: bigint[] = [];
      for (let restore = 0; restore < 3; restore++) {
        await stock.db("stock_head").update({ revision: backup });
        if (restore > 0) await store.beginEpoch();
        for (let i = 0; i < 3; i++) {
          const [made] = await store.write([{ kind: "put", petId: 1n, quantity: restore * 3 + i, status: "sold" }]);
          if (made?.kind === "done") used.push(made.item.revision);
        }
      }
      expect(new Set(used).size).toBe(9);
    });
  });
});

describe("an unreachable stock", () => {
  const stack = suiteStack();
  const open = (url: string): OpenStock => {
    const stock = openStock(url, { ...databaseDefaults, acquireTimeoutMs: 500 });
    stack.defer(() => stock.close());
    return stock;
  };
  const broken: [string, (stack: Stack) => Promise<string>][] = [
    ["nobody listens", async () => `mysql://someone:s3cret@127.0.0.1:${await freePort()}/stock`],
    ["the file is no database", notADatabase],
    ["MySQL has no schema", () => keep(createMysqlDatabase())],
    ["SQLite has no schema", () => keep(createSqliteDatabase())],
  ];
  async function keep(creating: Promise<string>): Promise<string> {
    const url = await creating;
    stack.defer(() => dropDatabase(url));
    return url;
  }
  async function notADatabase(): Promise<string> {
    const url = await keep(createSqliteDatabase());
    await writeFile(sqliteFile(url), "petId,quantity,status\n".repeat(100));
    return url;
  }

  test.each(broken)("every operation gives StockUnavailableError with the cause: %s", async (_why, urlOf) => {
    const { db, store, retention } = open(await urlOf(stack));
    const operations: Record<string, () => Promise<unknown>> = {
      ping: () => store.ping(),
      position: () => store.position(),
      get: () => store.get(1n),
      rowsAfter: () => store.rowsAfter(undefined, 10),
      changesAfter: () => store.changesAfter({ epoch: "", revision: 0n }, 10),
      write: () => store.write([create(1n)]),
      getMany: () => store.getMany([1n]),
      history: () => new StockHistory(db).before(undefined, 1n, 1),
      deleteFromLedger: () => retention.deleteFromLedger(1, 1, "revisions", 0n),
      noteTime: () => retention.noteTime(1),
      hasGap: () => retention.hasGap(1, 1),
      forgetRemovals: () => retention.forgetRemovals(1, 1),
    };
    for (const [name, operation] of Object.entries(operations)) {
      const error = await operation().then(
        () => `${name} succeeded`,
        (thrown) => thrown,
      );
      expect(error).toBeInstanceOf(StockUnavailableError);
      expect(error.message).toBe("the stock database is not available");
      expect(error.cause.message).toMatch(/./);
    }
  });
});
