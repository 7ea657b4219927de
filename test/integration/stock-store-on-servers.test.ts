import { writeFile } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import type { Knex } from "knex";
import { deleteOldRecords, retentionMs } from "../../inventory-svc/stock/cleanup.ts";
import type { Change, Outcome } from "../../inventory-svc/stock/decide-changes.ts";
import { ExpiredError, GroupCommit } from "../../inventory-svc/stock/group-commit.ts";
import { OutcomeUnknownError, StockUnavailableError } from "../../inventory-svc/stock/stock-errors.ts";
import type { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { type Item, maxPetId, maxQuantity, minPetId, type Position } from "../../proto/pet.ts";
import { acquireConnection, releaseConnection } from "../../runtime/database/knex-internals.ts";
import { type DatabaseOptions, databaseDefaults } from "../../runtime/database/open.ts";
import { createMysqlDatabase, createSqliteDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { connectMysql } from "../support/mysql-client.ts";
import {
  failAdjustments,
  holdLockFor,
  holdWriteLock,
  migrateStock,
  type OpenStock,
  openStock,
  pagesOf,
  sqliteFile,
  untilRunning,
} from "../support/open-stock.ts";
import { freePort } from "../support/ports.ts";
import { cleanup, startScript } from "../support/processes.ts";
import { type Stack, suiteStack } from "../support/stack.ts";
import { emptyModel, groupOf, outcomeKinds, type Plan, perform, plan, settle } from "../support/stock-model.ts";

const create = (petId: bigint, quantity = 1): Change => ({ kind: "create", petId, quantity, status: "available" });
const update = (petId: bigint, quantity: number): Change => ({ kind: "update", petId, quantity });
const adjust = (requestId: string, petId: bigint, delta: number): Change => ({
  kind: "adjust",
  petId,
  delta,
  requestId,
});
const remove = (petId: bigint): Change => ({ kind: "remove", petId });
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => BigInt(from + i));
const kinds = (outcomes: readonly Outcome[]) => outcomes.map(({ kind }) => kind);
const petIds = (items: readonly Item[]) => items.map(({ petId }) => petId);

/** Makes rows and items comparable: an item that was read as a row also has `removed`. */
function withoutRemoved(outcomes: readonly Outcome[]): Outcome[] {
  return outcomes.map((outcome) => {
    if (!("item" in outcome)) return outcome;
    const { petId, quantity, status, revision } = outcome.item;
    return { kind: outcome.kind, item: { petId, quantity, status, revision } };
  });
}

async function allPages(store: StockStore, pageSize: number): Promise<Item[]> {
  const items: Item[] = [];
  for await (const page of pagesOf(store, pageSize)) items.push(...page);
  return items;
}

/** Reads all changes after a position in pages of `limit`. Fails on a reset. */
async function follow(store: StockStore, from: Position, limit: number) {
  const pages = [];
  for (let position = from; ; ) {
    const changes = await store.changesAfter(position, limit);
    if (changes.kind === "reset") throw new Error("the position was refused");
    pages.push(changes);
    if (!changes.more) return pages;
    position = changes.position;
  }
}

/** Collects the error codes of the statements that fail from now on. */
function failuresOf(db: Knex): string[] {
  const codes: string[] = [];
  db.on("query-error", ({ code }: { code: string }) => codes.push(code));
  return codes;
}

/** Collects the statements that are sent from now on, without quotes: one text for each round trip to MySQL. */
function noteStatements(db: Knex): string[] {
  const statements: string[] = [];
  db.on("query", ({ sql }: { sql: string }) => statements.push(sql.replaceAll("`", "")));
  return statements;
}

/** Makes an empty stock on MySQL, which is dropped after the suite. */
async function newMysqlStock(stack: Stack, options?: DatabaseOptions) {
  const url = await createMysqlDatabase();
  stack.defer(() => dropDatabase(url));
  await migrateStock(url);
  const { db, store, close } = openStock(url, options);
  stack.defer(close);
  return { url, db, store };
}

/** Starts processes that write at the same time. @returns the result of each */
async function runWriters(url: string, tasks: string[][]): Promise<{ done: number; refused?: number }[]> {
  const writers = await Promise.all(
    tasks.map((args) =>
      startScript({
        name: "writer",
        script: "test/support/stock-writer.ts",
        args,
        env: { INVENTORY_DATABASE_URL: url },
      }),
    ),
  );
  await Promise.all(writers.map((writer) => writer.waitForLine((line) => line === "ready" || undefined, 20_000)));
  for (const writer of writers) await writer.kill("SIGUSR2");
  return await Promise.all(
    writers.map((writer) =>
      writer.waitForLine((line) => (line.startsWith("{") ? JSON.parse(line) : undefined), 50_000),
    ),
  );
}

describeEachDatabase("the stock's store", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let stock: OpenStock;
  let store: StockStore;
  let start: Position;

  beforeAll(async () => {
    await migrateStock(url());
    stock = openStock(url());
    stack.defer(() => stock.close());
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

  test("pages of the stock give every entry that stays once and in order, whatever is written between them", async () => {
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

  test("the changes after a position are the latest states in the order of revisions, removals included", async () => {
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

  test("commit order is revision order: a reader of one revision has seen all revisions before it, with three writers", async () => {
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

  test("callers that ask together for what has changed share one read of the counter, and a page for each position", async () => {
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
    expect(sent).toHaveLength(4);
    expect(first).toMatchObject({ kind: "changes", position: { revision: 3n }, rows: [{ petId: 1n, quantity: 5 }] });
    expect(second).toBe(first);
    expect(third).toMatchObject({ rows: [{ petId: 2n }, { petId: 1n }] });
    expect(reset).toEqual({ kind: "reset" });
  });

  test("a caller that asks for the position while it is being read gets one that was read afterwards", async () => {
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

  test("batches of any changes over two replicas come to the same as one change at a time on plain maps", async () => {
    const other = openStock(url());
    stack.defer(() => other.close());
    const kindsSeen = new Set<string>();
    const turn = fc.record({
      replica: fc.constantFrom(stock, other),
      batch: fc.array(groupOf(plan), { minLength: 1, maxLength: 12 }),
    });
    const check = async (turns: { replica: OpenStock; batch: Plan[][] }[]) => {
      await stock.empty();
      const beginning = await store.position();
      const model = emptyModel(0n);
      for (const { replica, batch } of turns) {
        const expected = batch.map((plans) => {
          const group = plans.map((each) => settle(each, model));
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
      expect(await stock.db("stock_requests").pluck("request_id").orderBy("id")).toEqual([...model.records.keys()]);
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
    ])("no revision is used again after a restore, with a counter %s the time of the clock", async (_when, backup) => {
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

  describe("a caller that leaves", () => {
    test("a change is not written when its caller leaves while another process holds the lock", async () => {
      await store.write([create(1n, 5), create(2n, 5)]);
      const commits = new GroupCommit({
        write: (requests) => store.writeWanted(requests),
        maxBatch: 100,
        maxQueued: 100,
        onDequeued: () => {},
        onWritten: () => {},
        now: () => performance.now(),
      });
      const lock = await holdLockFor(url(), 500);
      const untilMs = performance.now() + 100;
      const late = commits.submit([update(1n, 50)], () => performance.now() < untilMs);
      const patient = commits.submit([update(2n, 60)]);
      await expect(late).rejects.toBeInstanceOf(ExpiredError);
      expect(await patient).toMatchObject([{ kind: "done", item: { quantity: 60, revision: 3n } }]);
      await lock.released;
      expect(await store.get(1n)).toMatchObject({ quantity: 5, revision: 1n });
    });

    test("a transaction that no caller wants any more changes nothing and frees the lock", async () => {
      await store.write([create(1n, 5)]);
      const lock = await holdLockFor(url(), 500);
      const untilMs = performance.now() + 100;
      const request = { group: [update(1n, 50)], isWanted: () => performance.now() < untilMs };
      expect(await store.writeWanted([request])).toEqual(new Map());
      await lock.released;
      expect(await store.write([update(1n, 6)])).toMatchObject([{ kind: "done", item: { revision: 2n } }]);
    });

    test("a cancellation that arrives together with the lock is read before the changes are decided", async () => {
      await store.write([create(1n, 5)]);
      let isWanted = true;
      // As a socket that is read right after that of the database, in the same turn of the event loop.
      stock.db.once("query-response", () => {
        setImmediate().then(() => {
          isWanted = false;
        });
      });
      expect(await store.writeWanted([{ group: [update(1n, 50)], isWanted: () => isWanted }])).toEqual(new Map());
      expect(await store.get(1n)).toMatchObject({ quantity: 5 });
    });
  });

  describe("adjustments", () => {
    const recorded = () => stock.db("stock_requests").pluck("request_id").orderBy("id");

    test("adjustments that are repeated give the first result, even on another replica and after a restart", async () => {
      await store.write([create(1n, 5), { kind: "update", petId: 1n, status: "sold" }]);
      const item = { petId: 1n, quantity: 2, status: "sold", revision: 3n };
      expect(await store.write([adjust("a", 1n, -3)])).toMatchObject([{ kind: "done", item }]);
      await store.write([update(1n, 100), remove(1n)]);
      const restarted = openStock(url());
      stack.defer(() => restarted.close());
      for (const replica of [store, restarted.store]) {
        expect(await replica.write([adjust("a", 1n, -3)])).toEqual([{ kind: "replayed", item }]);
        expect(kinds(await replica.write([adjust("a", 1n, -2), adjust("A", 1n, -3)]))).toEqual([
          "id_reused",
          "not_found", // an id in another case is another id
        ]);
      }
      expect(await store.position()).toMatchObject({ revision: 5n });
    });

    test("adjustments are recorded in the transaction that makes them, all 1,201 of them or none", async () => {
      await store.write(range(1, 1_201).map((petId) => create(petId, 1)));
      const batch = range(1, 1_201).map((petId) => adjust(`id:${petId}`, petId, Number(petId)));
      // The insert of adjustments fails, which comes after the entries and the counter: nothing of those may stay.
      const restore = await failAdjustments(stock.db);
      // Where COMMIT was sent in the same packet, an error of the server does not say whether it was reached.
      const error = url().startsWith("sqlite:") ? StockUnavailableError : OutcomeUnknownError;
      await expect(store.write(batch)).rejects.toBeInstanceOf(error);
      await restore();
      expect(await store.position()).toMatchObject({ revision: 1_201n });

      const outcomes = await store.write(batch);
      expect(new Set(kinds(outcomes))).toEqual(new Set(["done"]));
      const again = await store.write(batch);
      expect(new Set(kinds(again))).toEqual(new Set(["replayed"]));
      const items = (all: readonly Outcome[]) =>
        withoutRemoved(all).map((outcome) => "item" in outcome && outcome.item);
      expect(items(again)).toEqual(items(outcomes));
      expect(await recorded()).toHaveLength(1_201);
    });

    test("adjustments happen once each when three processes make the same ones", async () => {
      await store.write(range(1, 210).map((petId) => create(petId, 0)));
      const results = await runWriters(url(), Array(3).fill(["adjust", "1", "210", "7"]));
      expect(results.reduce((sum, { done }) => sum + done, 0)).toBe(210);
      expect(results.map(({ refused }) => refused)).toEqual([0, 0, 0]);
      expect((await allPages(store, 1_000)).map(({ quantity }) => quantity)).toEqual(Array(210).fill(1));
      expect(await recorded()).toHaveLength(210);
    });

    test("adjustments cost nothing to a batch without any: its statements name no other table", async () => {
      await store.write([create(1n, 5)]);
      const statements = noteStatements(stock.db);
      await store.write([update(1n, 6)]);
      const plain = statements.splice(0).join(";");
      await store.write([update(1n, 7), adjust("a", 1n, 1)]);
      expect(plain).toMatch(
        /^BEGIN( IMMEDIATE)?;select revision from stock_head where id = 1( for update)?;select [a-z_, ]* from stock where pet_id in \(\?\);update stock_head set revision = \? where id = 1;insert into stock [^;]*;COMMIT$/,
      );
      expect(statements.join(";")).toContain("stock_requests");
      if (!url().startsWith("sqlite:")) expect(statements).toHaveLength(2);
    });

    describe("deletion", () => {
      const never = new AbortController().signal;

      /** Makes an adjustment of one pet of each of these ages. */
      async function makeAged(...agesMs: number[]): Promise<void> {
        await store.write([create(1n, 0)]);
        for (const [i, ageMs] of agesMs.entries()) {
          await store.write([adjust(`${i}`, 1n, 1)]);
          await age(ageMs, [`${i}`]);
        }
      }
      const age = (byMs: number, requestIds: readonly string[]) =>
        stock.db("stock_requests").whereIn("request_id", requestIds).decrement("made_at", byMs);

      test("adjustments are deleted after 25 hours and not before, and can then be made again", async () => {
        await makeAged(retentionMs + 60_000, retentionMs - 60_000, 0);
        await deleteOldRecords(stock.retention, never);
        expect(await recorded()).toEqual(["1", "2"]);
        expect(kinds(await store.write([adjust("0", 1n, 1), adjust("1", 1n, 1)]))).toEqual(["done", "replayed"]);
        expect(retentionMs).toBe(25 * 60 * 60_000);
      });

      test("adjustments are deleted by the clock of the database, whatever the clock of the service says", async () => {
        const nowMs = Date.now();
        await store.write([create(1n, 0)]);
        const clock = import.meta.jest.spyOn(Date, "now");
        for (const [i, offsetMs] of [-2 * retentionMs, 2 * retentionMs].entries()) {
          clock.mockReturnValue(nowMs + offsetMs);
          await store.write([adjust(`${i}`, 1n, 1)]);
          await deleteOldRecords(stock.retention, never);
        }
        clock.mockRestore();
        expect(await recorded()).toEqual(["0", "1"]);
      });

      test("adjustments are deleted in steps of a bounded size, and those of a slow clock together with the adjustments after them", async () => {
        await makeAged(16_000, 16_000, 16_000, 16_000, 16_000, 0, 16_000);
        const ids: bigint[] = await stock.db("stock_requests").orderBy("id").pluck("id");
        expect(await stock.retention.deleteRecords(15_000, 2, 0n)).toBe(ids[1]);
        expect(await recorded()).toEqual(["2", "3", "4", "5", "6"]);
        expect(await stock.retention.deleteRecords(15_000, 2, ids[1]!)).toBe(ids[3]);
        expect(await stock.retention.deleteRecords(15_000, 2, ids[3]!)).toBeUndefined();
        expect(await recorded()).toEqual(["5", "6"]);
        expect(await stock.retention.deleteRecords(-1, 10, 0n)).toBeUndefined();
        expect(await recorded()).toEqual([]);
      });

      test("adjustments with a time in the future stay, and those after them are deleted nevertheless", async () => {
        const [old, future] = [retentionMs + 60_000, -60_000];
        await makeAged(old, future, future, future, old, 0);
        const ids: bigint[] = await stock.db("stock_requests").orderBy("id").pluck("id");
        expect(await stock.retention.deleteRecords(retentionMs, 2, 0n)).toBe(ids[1]);
        expect(await stock.retention.deleteRecords(retentionMs, 2, ids[1]!)).toBe(ids[3]);
        expect(await stock.retention.deleteRecords(retentionMs, 2, ids[3]!)).toBeUndefined();
        expect(await recorded()).toEqual(["1", "2", "3", "5"]);
      });

      test("adjustments are deleted by several services while writers go on, without an error, and young adjustments stay", async () => {
        const old = Array.from({ length: 3_000 }, (_, i) => adjust(`old${i}`, 1n, 1));
        const young = openStock(url());
        // On SQLite all share a connection, as in a process: two of one process would block each other.
        const others = url().startsWith("sqlite:") ? [young, young] : [openStock(url()), openStock(url())];
        for (const each of new Set([young, ...others])) stack.defer(() => each.close());
        await young.store.write([create(1n, 0)]);
        await young.store.write(old);
        await young.db("stock_requests").decrement("made_at", 2 * retentionMs);
        const failures = [young, ...others].map(({ db }) => failuresOf(db));
        let over = false;
        const deleting = Promise.all(others.map((each) => deleteOldRecords(each.retention, never))).finally(() => {
          over = true;
        });
        let written = 0;
        while (!over || written < 20) {
          // Some of these are being deleted at this moment: they are replayed or made again, but never an error.
          const batch = [adjust(`young${written++}`, 1n, 1), old[(written * 97) % old.length]!];
          for (const { kind } of await young.store.write(batch)) expect(["done", "replayed"]).toContain(kind);
          await setImmediate(); // SQLite's answers come without a turn of the event loop
        }
        await deleting;
        expect(failures.flat()).toEqual([]);
        const left = await recorded();
        expect(left.filter((id) => id.startsWith("young"))).toHaveLength(written);
        const { quantity } = (await store.get(1n))!;
        const madeAgain = left.filter((id) => id.startsWith("old")).length;
        expect(quantity).toBe(old.length + written + madeAgain);
      });
    });
  });

  describe("a lock of another process", () => {
    let other: OpenStock;
    beforeAll(async () => {
      other = openStock(url(), { ...databaseDefaults, poolMax: 1 });
      stack.defer(() => other.close());
      if (!url().startsWith("sqlite:")) await other.db.raw("SET SESSION innodb_lock_wait_timeout = 1");
    });

    test("a write that waited too long for the lock of another process is retried and happens once", async () => {
      if (url().startsWith("sqlite:")) return; // its wait for a lock is not repeated
      const lock = await holdWriteLock(url());
      const failed = new Promise<string>((resolve) => {
        other.db.once("query-error", ({ code }: { code: string }) => resolve(code));
      });
      const writing = other.store.write([create(1n, 5)]);
      expect(await failed).toBe("ER_LOCK_WAIT_TIMEOUT");
      await lock.release();
      expect(kinds(await writing)).toEqual(["done"]);
      expect(await store.position()).toMatchObject({ revision: 1n });
    });

    test("a write gives up after four attempts while another process holds the lock, changes nothing, and the next one works", async () => {
      if (url().startsWith("sqlite:")) return; // its wait for a lock is not repeated
      const lock = await holdWriteLock(url());
      const failures = failuresOf(other.db);
      await expect(other.store.write([create(1n)])).rejects.toBeInstanceOf(StockUnavailableError);
      expect(failures).toHaveLength(4);
      await lock.release();
      expect(await store.position()).toEqual(start);
      expect(kinds(await other.store.write([create(1n)]))).toEqual(["done"]);
    });

    test("reads go on while another process holds the lock", async () => {
      await store.write([create(1n)]);
      const lock = await holdWriteLock(url());
      expect(await other.store.get(1n)).toBeDefined();
      expect(await other.store.changesAfter(start, 10)).toMatchObject({ rows: [{ petId: 1n }] });
      expect(await allPages(other.store, 10)).toHaveLength(1);
      await lock.release();
    });
  });
});

describe("a read-only server (MySQL/MariaDB)", () => {
  const stack = suiteStack();

  test("connections to a server that has become read-only are discarded: the write happens once, over another connection", async () => {
    const { db, store } = await newMysqlStock(stack, { ...databaseDefaults, poolMax: 6 });
    await store.write([create(1n)]);
    for (const quantity of [7, 8]) {
      const failures = failuresOf(db);
      const stale = await Promise.all(Array.from({ length: 6 }, () => acquireConnection(db)));
      for (const connection of stale) {
        await db.raw("SET SESSION TRANSACTION READ ONLY").connection(connection);
        await releaseConnection(db, connection);
      }
      const { revision } = await store.position();
      expect(kinds(await store.write([update(1n, quantity)]))).toEqual(["done"]);
      expect(await store.position()).toMatchObject({ revision: revision + 1n });
      expect(failures).toHaveLength(1);
    }
  });
});

describe("deadlocks (MySQL/MariaDB)", () => {
  const stack = suiteStack();

  test("a write that deadlocks is retried and happens once", async () => {
    const { url, db, store } = await newMysqlStock(stack);
    await store.write(range(1, 300).map((petId) => create(petId)));
    const failures = failuresOf(db);

    // Another writer takes the locks in the opposite order. It has done more, so the server takes back the store's
    // write.
    const other = await connectMysql(url);
    stack.defer(() => other.end());
    await other.query("BEGIN");
    await other.query("UPDATE stock SET quantity = quantity + 1");
    const writing = store.write([update(1n, 50), update(2n, 50)]);
    await untilRunning(url, "insert");
    await other.query("UPDATE stock_head SET revision = revision");
    await other.query("COMMIT");
    expect(kinds(await writing)).toEqual(["done", "done"]);
    expect(failures).toEqual(["ER_LOCK_DEADLOCK"]);
    expect(await store.get(1n)).toMatchObject({ quantity: 50, revision: 301n });
    expect(await store.position()).toMatchObject({ revision: 302n });
  });
});

describe("a cut connection (MySQL/MariaDB)", () => {
  const stack = suiteStack();

  test("a write that is cut off while it waits for the lock happens once, over another connection", async () => {
    const { url, store } = await newMysqlStock(stack);
    await store.write([create(1n, 5)]);
    const lock = await holdWriteLock(url);
    const writing = store.write([update(1n, 50)]);
    const connectionId = await untilRunning(url, "BEGIN", "select");
    const other = await connectMysql(url);
    stack.defer(() => other.end());
    await other.query(`KILL ${connectionId}`);
    await lock.release();
    expect(kinds(await writing)).toEqual(["done"]);
    expect(await store.get(1n)).toMatchObject({ quantity: 50, revision: 2n });
  });

  test("a write happens although the server has closed all connections during a standstill", async () => {
    const { db, store } = await newMysqlStock(stack, { ...databaseDefaults, silenceTimeoutMs: 500 });
    await store.write([create(1n, 5)]);
    for (const quantity of [6, 7]) {
      await Promise.all(Array.from({ length: 6 }, () => db.raw("DO SLEEP(0.1)"))); // over a connection each
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3_000);
      if (quantity === 7) await setImmediate(); // in the other half it has noticed some of that
      expect(kinds(await store.write([update(1n, quantity)]))).toEqual(["done"]);
    }
  });

  test("a write whose commit is cut off has an unknown outcome, and the next write works", async () => {
    const { url, store } = await newMysqlStock(stack);
    await store.write([create(1n, 5), create(2n, 5)]);
    const other = await connectMysql(url);
    stack.defer(() => other.end());
    await other.query("BEGIN");
    await other.query("SELECT * FROM stock WHERE pet_id = 1 FOR UPDATE");
    const writing = store.write([update(1n, 50)]).catch((error: unknown) => error);
    await other.query(`KILL ${await untilRunning(url, "insert")}`);
    expect(await writing).toBeInstanceOf(OutcomeUnknownError);
    await other.query("ROLLBACK");
    expect(await store.get(1n)).toMatchObject({ quantity: 5, revision: 1n });
    expect(kinds(await store.write([update(1n, 60)]))).toEqual(["done"]);
    expect(await store.position()).toMatchObject({ revision: 3n });
  });
});

describe("round trips (MySQL/MariaDB)", () => {
  const stack = suiteStack();
  const once = (petId: bigint) => ({ id: `acme k ${petId}`, fingerprint: "x" });

  test("one change, a batch, changes that happen once and their repeat take two round trips each", async () => {
    const { db, store } = await newMysqlStock(stack);
    await store.write(range(1, 3).map((petId) => create(petId, 0)));
    const keyed = range(1, 2).map((petId): Change => ({ kind: "update", petId, quantity: 90, once: once(petId) }));
    const statements = noteStatements(db);
    for (const batch of [[update(1n, 7)], range(1, 3).map((petId) => update(petId, 8)), keyed, keyed]) {
      statements.length = 0;
      await store.write(batch);
      expect(statements).toHaveLength(2);
    }
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

  test.each(broken)(
    "a stock that cannot be reached gives StockUnavailableError with the cause from every operation: %s",
    async (_why, urlOf) => {
      const { store, retention } = open(await urlOf(stack));
      const operations: Record<string, () => Promise<unknown>> = {
        ping: () => store.ping(),
        position: () => store.position(),
        get: () => store.get(1n),
        rowsAfter: () => store.rowsAfter(undefined, 10),
        changesAfter: () => store.changesAfter({ epoch: "", revision: 0n }, 10),
        write: () => store.write([create(1n)]),
        getMany: () => store.getMany([1n]),
        deleteRecords: () => retention.deleteRecords(1, 1, 0n),
        noteTime: () => retention.noteTime(1),
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
    },
  );
});

describeEachDatabase("a stock of 100,000 entries", (url) => {
  const stack = suiteStack();
  const count = 100_000;
  let stock: OpenStock;
  let epoch: string;

  beforeAll(async () => {
    await migrateStock(url());
    // One connection, so that what it counts is what the store's statements did.
    stock = openStock(url(), { ...databaseDefaults, poolMax: 1 });
    stack.defer(() => stock.close());
    for (let from = 1; from <= count; from += 5_000) {
      await stock.store.write(range(from, from + 4_999).map((petId) => create(petId)));
    }
    ({ epoch } = await stock.store.position());
  });

  /** Rows that the server read for a piece of work, and the plan of its last statement. */
  async function costOf(work: () => Promise<unknown>): Promise<{ read: number; plan: string }> {
    let last: { sql: string; bindings: unknown[] } | undefined;
    stock.db.on("query", (query) => {
      last = query;
    });
    const isSqlite = url().startsWith("sqlite:");
    const counters = async () => {
      if (isSqlite) return 0;
      const [rows] = await stock.db.raw("SHOW SESSION STATUS LIKE 'Handler_read%'");
      return (rows as { Value: string }[]).reduce((sum, { Value }) => sum + Number(Value), 0);
    };
    const before = await counters();
    await work();
    const { sql, bindings } = last!;
    const read = (await counters()) - before;
    const explained = await stock.db.raw(
      `${isSqlite ? "EXPLAIN QUERY PLAN" : "EXPLAIN FORMAT=JSON"} ${sql}`,
      bindings as never,
    );
    return {
      read,
      plan: JSON.stringify(isSqlite ? explained : explained[0], (_, v) => (typeof v === "bigint" ? Number(v) : v)),
    };
  }

  test.each([
    ["at the latest revision", 0, 1_000],
    ["10 changes before it", 10, 1_000],
    ["half the stock before it, for a page of 1,000", 50_000, 1_000],
    ["all of the stock before it, for a page of 10", 100_000, 10],
  ])("a read of changes costs the changes, not the whole stock: %s", async (_where, behind, limit) => {
    const position = { epoch, revision: BigInt(count - behind) };
    const rows = Math.min(behind, limit);
    const { read, plan } = await costOf(async () => {
      expect(await stock.store.changesAfter(position, limit)).toMatchObject({ rows: { length: rows } });
    });
    // A row through the index, the temporary table of the page and its order: the same few times, at any distance.
    expect(read).toBeLessThanOrEqual(30 + 6 * rows);
    // At the head one row of the counter says that there is nothing more.
    expect(plan).toMatch(rows === 0 ? /stock_head/ : /stock_revision_index/);
    expect(plan).not.toMatch(/SCAN stock\b/);
  });

  test("a page of the list costs the rows of a page, wherever it begins", async () => {
    const { read, plan } = await costOf(async () => {
      for await (const page of pagesOf(stock.store, 50)) if (page[0]!.petId > 200n) break;
    });
    expect(read).toBeLessThanOrEqual(5 * 55);
    expect(plan).toMatch(/PRIMARY|INTEGER PRIMARY KEY|USING INDEX/);
  });

  test("a page of the list or of changes costs its own rows, however many entries were removed", async () => {
    const removed = await stock.store.position();
    for (let from = 1_001; from <= 99_000; from += 5_000) {
      await stock.store.write(range(from, Math.min(from + 4_999, 99_000)).map(remove));
    }
    for (const after of [undefined, 1_000n, 50_000n]) {
      const page = await costOf(async () => {
        expect(await stock.store.rowsAfter(after, 50)).toHaveLength(50);
      });
      expect(page.read).toBeLessThanOrEqual(55);
      expect(page.plan).toMatch(/PRIMARY|USING INDEX sqlite_autoindex_stock/);
      expect(page.plan).not.toMatch(/filesort|TEMP B-TREE/);
    }
    const changes = await costOf(async () => {
      expect(await stock.store.changesAfter(removed, 50)).toMatchObject({ rows: { length: 50 }, more: true });
    });
    expect(changes.read).toBeLessThanOrEqual(30 + 6 * 50);
    expect(changes.plan).toMatch(/stock_revision_index/);
    const entries = await allPages(stock.store, 1_000);
    expect(petIds(entries)).toEqual([...range(1, 1_000), ...range(99_001, count)]);
  }, 60_000);

  test("a read of one entry costs one row", async () => {
    const { read } = await costOf(async () => {
      expect(await stock.store.get(BigInt(count))).toBeDefined();
    });
    expect(read).toBeLessThanOrEqual(2);
  });
});
