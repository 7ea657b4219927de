import { once } from "node:events";
import { ServerCredentials, status } from "@grpc/grpc-js";
import type { Position } from "../../proto/pet.ts";
import { connectInventory, messagesOf } from "../../test/support/grpc.ts";
import { suiteStock } from "../../test/support/open-stock.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { until } from "../../test/support/until.ts";
import { createRpcServer } from "../grpc-server.ts";
import type { Change, ChangeGroup, Outcome } from "../stock/change.ts";
import { ChangeFeed } from "../stock/change-feed.ts";
import { ListFeed } from "../stock/list-feed.ts";
import { StockUnavailableError } from "../stock/stock-errors.ts";
import { StockHistory } from "../stock/stock-history.ts";
import type { ChangesPage } from "../stock/stock-store.ts";
import { type HandlerDeps, inventoryHandlers } from "./handlers.ts";

const create = (petId: bigint): Change => ({ kind: "create", petId, quantity: 1, status: "available" });
/** Sooner than a stream ends by itself. */
const soon = () => ({ deadline: Date.now() + 7_000 });
/** Longer than any stream lives. */
const deadlineMs = 60_000;
const start: Position = { epoch: "e", revision: 0n };

describe("the handlers of calls", () => {
  const stack = suiteStack();
  const { db, store } = suiteStock();

  /** Serves calls over gRPC. @param overrides replace parts of what the handlers use */
  async function serve(overrides: Partial<HandlerDeps> = {}) {
    const draining = new AbortController();
    const handlers = inventoryHandlers({
      store,
      history: new StockHistory(db),
      keepsHistory: true,
      actorOf: () => ({ kind: "internal" }),
      commits: { submit: async ({ changes }) => await store.write(changes) },
      feed: new ChangeFeed((from) => store.changesAfter(from, 10)),
      lists: new ListFeed(store, 10),
      draining: draining.signal,
      onCall: () => {},
      ...overrides,
    });
    const server = createRpcServer({
      handlers,
      credentials: ServerCredentials.createInsecure(),
      maxConnectionAgeMs: 60_000,
      connectionGraceMs: 60_000,
    });
    stack.defer(() => server.close(0));
    const inventory = connectInventory(await server.listen({ host: "127.0.0.1", port: 0 }));
    stack.defer(() => inventory.close());
    return { inventory, drain: () => draining.abort() };
  }
  /** A store whose pages come from here. */
  const paged = (changesAfter: (from: Position) => Promise<ChangesPage>) => ({
    store: Object.assign(Object.create(store), { changesAfter }) as typeof store,
  });

  test("CheckInventory answers one question after the other, and marks a reset and the last answer", async () => {
    const { inventory } = await serve();
    const position = await store.position();
    await store.write([create(1n)]);
    const stream = inventory.check(soon());
    stream.send(position);
    const changes = { items: [{ petId: 1n }], more: false, reset: false, revision: 1n };
    expect(await stream.next()).toMatchObject(changes);
    stream.send({ epoch: "another", revision: 0n });
    expect(await stream.next()).toMatchObject({ items: [], more: false, reset: true });
    stream.send(position);
    expect(await stream.next()).toMatchObject(changes);
    stream.call.end();
    expect(await stream.next()).toBeUndefined();
  });

  test("at most three reads of entries run at once, so that writes and checks find a connection", async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const begun: string[] = [];
    const begin = async (what: string) => {
      begun.push(what);
      await released;
    };
    const get = () => begin("get").then(() => undefined);
    const getMany = () => begin("getMany").then(() => new Map());
    const { inventory } = await serve({ store: Object.assign(Object.create(store), { get, getMany }) });
    const reads = Array.from({ length: 5 }, () => [
      inventory.batchGet({ petIds: [1n] }),
      inventory.get({ petId: 1n }).catch(({ code }) => code),
    ]);
    await inventory.update({ petId: 1n, quantity: 1 }).catch(() => {}); // it came last, and is answered
    expect(begun).toHaveLength(3);
    release();
    await Promise.all(reads.flat());
    expect(begun).toHaveLength(10);
  });

  test("CheckInventory sends an answer of many messages to its end", async () => {
    const { inventory } = await serve(
      paged(async ({ epoch, revision }) => ({
        kind: "changes",
        position: { epoch, revision: revision + 1n },
        floor: 0n,
        rows: [],
        more: revision < 199n,
      })),
    );
    const stream = inventory.check(soon());
    stream.send(start);
    for (let revision = 1n; revision <= 200n; revision++) {
      expect(await stream.next()).toMatchObject({ revision, more: revision < 200n });
    }
    stream.call.end();
  });

  test("CheckInventory ends an idle stream when the service drains", async () => {
    const { inventory, drain } = await serve();
    const stream = inventory.check(soon());
    stream.send(await store.position());
    expect(await stream.next()).toMatchObject({ reset: false });
    drain();
    expect(await stream.next()).toBeUndefined();
  });

  test("CheckInventory ends a stream at once that is opened while the service drains", async () => {
    const { inventory, drain } = await serve();
    drain();
    expect(await inventory.check(soon()).next()).toBeUndefined();
  });

  test("CheckInventory ends the answer that it has begun, then the stream, when the service drains", async () => {
    const asked = Promise.withResolvers<void>();
    const page = Promise.withResolvers<ChangesPage>();
    const { inventory, drain } = await serve(
      paged(() => {
        asked.resolve();
        return page.promise;
      }),
    );
    const stream = inventory.check(soon());
    stream.send(start);
    await asked.promise;
    drain();
    page.resolve({ kind: "changes", position: { epoch: "e", revision: 5n }, floor: 0n, rows: [], more: false });
    expect(await stream.next()).toMatchObject({ revision: 5n });
    expect(await stream.next()).toBeUndefined();
  });

  test("WatchInventory ends when the service drains", async () => {
    const { inventory, drain } = await serve();
    const next = messagesOf(inventory.client.watchInventory(await store.position(), soon()));
    expect(await next()).toMatchObject({ items: [], reset: false });
    drain();
    expect(await next()).toBeUndefined();
  });

  /** Changes that wait until they are told to be written. */
  function heldCommits() {
    const submitted = Promise.withResolvers<void>();
    const written = Promise.withResolvers<void>();
    const submit = import.meta.jest.fn(async (group: ChangeGroup) => {
      submitted.resolve();
      await written.promise;
      return await store.write(group.changes);
    });
    return { submit, submitted: submitted.promise, write: written.resolve };
  }

  test("ApplyChanges sends the results that are due after its caller has ended the stream", async () => {
    await store.write([create(1n)]);
    const { write, ...commits } = heldCommits();
    const { inventory } = await serve({ commits });
    const stream = inventory.applyChanges(soon());
    stream.send({ groups: [{ changes: [{ petId: 1n, quantity: 7 }], deadlineMs }] });
    stream.call.end();
    await inventory.get({ petId: 1n }); // on the same connection, so the end has arrived
    write();
    expect(await stream.next()).toMatchObject({ results: [{ refusal: undefined, item: { quantity: 7 } }] });
    expect(await stream.next()).toBeUndefined();
  });

  test("ApplyChanges ends at once when its caller ends a stream without a request", async () => {
    const { inventory } = await serve();
    const stream = inventory.applyChanges(soon());
    stream.call.end();
    expect(await stream.next()).toBeUndefined();
  });

  test("ApplyChanges answers the request that it has begun when the service drains, and no other", async () => {
    await store.write([create(1n)]);
    const { write, submitted, submit } = heldCommits();
    const { inventory, drain } = await serve({ commits: { submit } });
    const stream = inventory.applyChanges(soon());
    for (const quantity of [7, 8]) stream.send({ groups: [{ changes: [{ petId: 1n, quantity }], deadlineMs }] });
    await submitted;
    await inventory.get({ petId: 1n }); // on the same connection, so both have arrived
    drain();
    write();
    expect(await stream.next()).toMatchObject({ results: [{ item: { quantity: 7 } }] });
    expect(await stream.next()).toBeUndefined();
    expect(submit).toHaveBeenCalledTimes(1);
  });

  test("ApplyChanges ends after a request of which it could make nothing, so that others are asked", async () => {
    await store.write([create(1n)]);
    const away = async ({ changes }: ChangeGroup) => {
      if (changes[0]!.petId === 2n) throw new StockUnavailableError(new Error("away"));
      return await store.write(changes);
    };
    const { inventory } = await serve({ commits: { submit: away } });
    const stream = inventory.applyChanges(soon());
    const groupOf = (petId: bigint) => ({ changes: [{ petId, quantity: 7 }], deadlineMs });
    const refused = { refusal: { code: status.UNAVAILABLE } };
    stream.send({ groups: [groupOf(1n), groupOf(2n)] });
    expect(await stream.next()).toMatchObject({ results: [{ item: { quantity: 7 } }, refused] });
    stream.send({ groups: [groupOf(2n), groupOf(2n)] });
    expect(await stream.next()).toMatchObject({ results: [refused, refused] });
    expect(await stream.next()).toBeUndefined();
  });

  test("ApplyChanges does nothing of a request that crosses with the end of its stream", async () => {
    await store.write([create(1n)]);
    const { write, submit } = heldCommits();
    write();
    const { inventory, drain } = await serve({ commits: { submit } });
    const stream = inventory.applyChanges(soon());
    await once(stream.call, "metadata");
    drain();
    stream.send({ groups: [{ changes: [{ petId: 1n, quantity: 7 }], deadlineMs }] });
    expect(await stream.next()).toBeUndefined();
    await inventory.get({ petId: 1n }); // on the same connection, so the request has arrived
    expect(submit).not.toHaveBeenCalled();
  });

  test("a stream of questions ends by itself, so that the next one may lead to another service", async () => {
    const { inventory } = await serve();
    const streams = [inventory.check(), inventory.applyChanges()];
    expect(await Promise.all(streams.map(({ next }) => next()))).toEqual([undefined, undefined]);
  });

  test("a change of a caller that has cancelled its call is not wanted any more", async () => {
    const submitted = Promise.withResolvers<() => boolean>();
    const { promise: outcomes, reject } = Promise.withResolvers<readonly Outcome[]>();
    const submit = (_group: ChangeGroup, isWanted = () => true) => {
      submitted.resolve(isWanted);
      return outcomes;
    };
    const { inventory } = await serve({ commits: { submit } });
    const call = inventory.begin(inventory.client.removeInventoryItem, { petId: 1n });
    const isWanted = await submitted.promise;
    expect(isWanted()).toBe(true);
    call.cancel();
    await expect(call.response).rejects.toThrow("CANCELLED");
    await until(() => !isWanted());
    reject(new Error("it was dropped"));
  });

  /** A service that says of each change whether its caller still waits, and writes nothing. */
  async function asked() {
    const wanted: (() => boolean)[] = [];
    const submit = async (_group: ChangeGroup, isWanted = () => true) => {
      wanted.push(isWanted);
      throw new Error("nothing is written");
    };
    return { ...(await serve({ commits: { submit } })), wanted };
  }

  test("a change of a caller that has cancelled its stream is not wanted any more", async () => {
    const { inventory, wanted } = await asked();
    const stream = inventory.applyChanges(soon());
    stream.send({ groups: [{ changes: [{ petId: 1n, quantity: 7 }], deadlineMs }] });
    await stream.next();
    expect(wanted.map((isWanted) => isWanted())).toEqual([true]);
    stream.call.cancel();
    await until(() => !wanted[0]!());
  });

  test("the time of changes counts from when their stream was accepted, whatever delays them", async () => {
    const { inventory, wanted } = await asked();
    const stream = inventory.applyChanges(soon());
    await once(stream.call, "metadata");
    const acceptedMs = performance.now();
    await until(() => performance.now() > acceptedMs + 100);
    const changes = [{ petId: 1n, quantity: 7 }];
    stream.send({ groups: [100, deadlineMs].map((ms) => ({ changes, deadlineMs: ms })) });
    await stream.next();
    expect(wanted.map((isWanted) => isWanted())).toEqual([false, true]);
  });
});
