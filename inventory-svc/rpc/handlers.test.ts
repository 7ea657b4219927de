import { ServerCredentials } from "@grpc/grpc-js";
import type { Position } from "../../proto/pet.ts";
import { suiteStack } from "../../test/support/cleanup.ts";
import { connectInventory, type Inventory, messagesOf } from "../../test/support/grpc.ts";
import { suiteStock } from "../../test/support/stock.ts";
import { until } from "../../test/support/until.ts";
import { createRpcServer } from "../server.ts";
import { ChangeFeed } from "../stock/change-feed.ts";
import type { Change, ChangeGroup, Outcome } from "../stock/changes.ts";
import type { ChangesPage } from "../stock/store.ts";
import { type HandlerDeps, inventoryHandlers } from "./handlers.ts";

const create = (petId: bigint): Change => ({ kind: "create", petId, quantity: 1, status: "available" });
const soon = () => ({ deadline: Date.now() + 20_000 });
const start: Position = { epoch: "e", revision: 0n };

describe("the handlers of calls", () => {
  const stack = suiteStack();
  const { store } = suiteStock();

  /** Serves calls over gRPC. @param overrides replace parts of what the handlers use */
  async function serve(overrides: Partial<HandlerDeps> = {}) {
    const draining = new AbortController();
    const applied = Promise.withResolvers<void>();
    const handlers = inventoryHandlers({
      store,
      commits: { submit: async (group) => await store.write(group) },
      feed: new ChangeFeed((from) => store.changesAfter(from, 10)),
      draining: draining.signal,
      onCall: () => {},
      waitedMs: () => 0,
      ...overrides,
    });
    const server = createRpcServer({
      handlers: {
        ...handlers,
        applyUpdates: (call) => {
          call.on("end", applied.resolve);
          handlers.applyUpdates(call);
        },
      },
      credentials: ServerCredentials.createInsecure(),
      maxConnectionAgeMs: 60_000,
      connectionGraceMs: 60_000,
    });
    stack.defer(() => server.close(0));
    const inventory = connectInventory(await server.listen({ host: "127.0.0.1", port: 0 }));
    stack.defer(() => inventory.close());
    /** Resolves when the service has read the end of a stream of updates. */
    return { inventory, drain: () => draining.abort(), readEnd: applied.promise };
  }
  /** A store whose pages come from here. */
  const paged = (changesAfter: (from: Position) => Promise<ChangesPage>) => ({
    store: Object.assign(Object.create(store), { changesAfter }) as typeof store,
  });

  test("CheckInventory answers one question after the other, and says where an answer is a reset or the last one", async () => {
    const { inventory } = await serve();
    const position = await store.position();
    await store.write([create(1n)]);
    const stream = inventory.check(soon());
    stream.send(position);
    const changes = { changed: [{ petId: 1n }], removedPetIds: [], more: false, reset: false, revision: 1n };
    expect(await stream.next()).toMatchObject(changes);
    stream.send({ epoch: "another", revision: 0n });
    expect(await stream.next()).toMatchObject({ changed: [], removedPetIds: [], more: false, reset: true });
    stream.send(position);
    expect(await stream.next()).toMatchObject(changes);
    stream.call.end();
    expect(await stream.next()).toBeUndefined();
  });

  test("CheckInventory sends an answer of many messages to its end", async () => {
    const { inventory } = await serve(
      paged(async ({ epoch, revision }) => ({
        kind: "changes",
        position: { epoch, revision: revision + 1n },
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

  test("CheckInventory gives the answer that it has begun when the service drains, and then ends the stream", async () => {
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
    page.resolve({ kind: "changes", position: { epoch: "e", revision: 5n }, rows: [], more: false });
    expect(await stream.next()).toMatchObject({ revision: 5n });
    expect(await stream.next()).toBeUndefined();
  });

  test("WatchInventory ends when the service drains", async () => {
    const { inventory, drain } = await serve();
    const next = messagesOf(inventory.client.watchInventory(await store.position(), soon()));
    expect(await next()).toMatchObject({ changed: [], reset: false });
    drain();
    expect(await next()).toBeUndefined();
  });

  test("ApplyUpdates sends the results that are still due after its caller has ended the stream, and then ends it", async () => {
    await store.write([create(1n)]);
    const written = Promise.withResolvers<void>();
    const { inventory, readEnd } = await serve({
      commits: {
        submit: async (group) => {
          await written.promise;
          return await store.write(group);
        },
      },
    });
    const stream = inventory.applyUpdates(soon());
    const update = { id: 4, petId: 1n, quantity: 7, timeoutMs: 10_000 };
    stream.send({ updates: [update] });
    stream.call.end();
    await readEnd;
    written.resolve();
    expect(await stream.next()).toMatchObject({
      results: [{ id: 4, code: 0, item: { quantity: 7 } }],
      draining: false,
    });
    expect(await stream.next()).toBeUndefined();
  });

  test("ApplyUpdates ends at once when its caller ends a stream without updates", async () => {
    const { inventory } = await serve();
    const stream = inventory.applyUpdates(soon());
    stream.call.end();
    expect(await stream.next()).toBeUndefined();
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

  const changes: [string, (inventory: Inventory) => void][] = [
    ["a call", ({ client, begin }) => void begin(client.removeInventoryItem, { petId: 1n }).response.catch(() => {})],
    [
      "an update on a stream",
      ({ applyUpdates }) => applyUpdates(soon()).send({ updates: [{ petId: 1n, quantity: 7, timeoutMs: 20_000 }] }),
    ],
  ];
  test.each(changes)(
    "the time that %s may have waited to be read counts towards the time that its caller waits",
    async (_what, send) => {
      for (const [waitedMs, stillWanted] of [
        [0, true],
        [21_000, false],
      ] as const) {
        const wanted = Promise.withResolvers<boolean>();
        const submit = async (_group: ChangeGroup, isWanted = () => true) => {
          wanted.resolve(isWanted());
          throw new Error("nothing is written");
        };
        const { inventory } = await serve({ commits: { submit }, waitedMs: () => waitedMs });
        send(inventory);
        expect(await wanted.promise).toBe(stillWanted);
      }
    },
  );
});
