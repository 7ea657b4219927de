import { type handleBidiStreamingCall, Metadata, ServerCredentials, status } from "@grpc/grpc-js";
import { createInventoryClient, type InventoryClient, InventoryError, type WatchEvent } from "../../client/index.ts";
import { createRpcServer } from "../../inventory-svc/grpc-server.ts";
import { Status } from "../../proto/gen/google/rpc/status.ts";
import {
  type ApplyChangesRequest,
  type ApplyChangesResponse,
  InventoryServiceService,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { freePort } from "../support/ports.ts";
import { runScript } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const big = 9_223_372_036_854_775_807n;
const entryCount = 2_500;

/** A google.rpc.Status with RetryInfo and ErrorInfo. */
const statusWithErrorInfo =
  "CAoSAm5vGjAKKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5SZXRyeUluZm8SBAoCCAEacwoodHlwZS5nb29nbGVhcGlz" +
  "LmNvbS9nb29nbGUucnBjLkVycm9ySW5mbxJHChFSRVZJU0lPTl9NSVNNQVRDSBIVcGV0c3RvcmUuaW52ZW50b3J5LnYxGgsKBnBl" +
  "dF9pZBIBNxoOCghyZXZpc2lvbhICMTI=";

/** Resolves to the code or the error that a call ends with, `OK` when it succeeds. */
const failureOf = (call: Promise<unknown>) =>
  call.then(
    () => "OK",
    (error: unknown) => (error instanceof InventoryError ? error.code : error),
  );

describe("the client for internal callers", () => {
  const stack = suiteStack();
  let system: System;
  let inventory: InventoryClient;

  beforeAll(async () => {
    const entries = Array.from({ length: entryCount - 1 }, (_, index) => ({ petId: BigInt(index) }));
    system = await startSystem({
      gateways: 0,
      seed: [...entries, { petId: big }].map((entry) => ({ ...entry, quantity: 1, status: "sold" as const })),
    });
    stack.defer(() => system.close());
    inventory = createInventoryClient({ address: system.inventory.listen });
    stack.defer(() => inventory.close());
  });

  async function here() {
    for await (const { position } of inventory.list()) return position;
    throw new Error("the list has no position");
  }

  function watchFrom(...args: Parameters<InventoryClient["watch"]>) {
    const events = inventory.watch(...args)[Symbol.asyncIterator]();
    stack.defer(() => void events.return?.());
    return async () => (await events.next()).value as WatchEvent;
  }

  test("the internal client reads and changes entries whose ids are exact to the last digit", async () => {
    expect(await inventory.get(big)).toMatchObject({ petId: big, quantity: 1, status: "sold" });
    const { revision } = await inventory.update({ petId: big, quantity: 5 });
    expect(await inventory.update({ petId: big, quantity: 6, expectedRevision: revision })).toEqual({
      petId: big,
      quantity: 6,
      status: "sold",
      revision: revision + 1n,
    });
    expect(await inventory.create({ petId: -7n, quantity: 0 })).toMatchObject({ petId: -7n, status: "available" });
    expect(await inventory.remove(-7n)).toBe(revision + 3n);
  });

  test("the client adjusts once for each request id, sets statuses, and gets entries in one call", async () => {
    const [petId, requestId] = [3n, "client-test"];
    const { revision } = await inventory.update({ petId, quantity: 10 });
    const item = { petId, quantity: 6, status: "sold", revision: revision + 1n };
    expect(await inventory.adjust({ petId, delta: -4, requestId })).toEqual({ item, replayed: false });
    expect(await inventory.adjust({ petId, delta: -4, requestId })).toEqual({ item, replayed: true });
    await expect(inventory.adjust({ petId, delta: -7, requestId: "client-test-2" })).rejects.toMatchObject({
      code: "FAILED_PRECONDITION",
      errorReason: "INSUFFICIENT_STOCK",
      details: { pet_id: "3", quantity: "6", revision: String(item.revision) },
    });
    const pending = { ...item, status: "pending", revision: item.revision + 1n };
    expect(await inventory.setStatus({ petId, status: "pending", expectedRevision: item.revision })).toEqual(pending);
    expect(await inventory.getMany([petId, -5n])).toEqual({ items: [pending], missing: [-5n] });
  });

  test("the client updates once for each idempotencyKey, and refuses the key of another update", async () => {
    const [petId, idempotencyKey] = [4n, "client-test"];
    const first = await inventory.update({ petId, quantity: 11, idempotencyKey });
    await inventory.update({ petId, quantity: 12 });
    expect(await inventory.update({ petId, quantity: 11, idempotencyKey })).toEqual(first);
    expect(await inventory.get(petId)).toMatchObject({ quantity: 12 });
    await expect(inventory.update({ petId, quantity: 13, idempotencyKey })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      errorReason: "KEY_REUSED",
    });
  });

  test("the client says why each change is made, and reads who made which, page by page", async () => {
    const petId = -50n;
    await inventory.create({ petId, quantity: 1, reason: "a" });
    await inventory.update({ petId, quantity: 2, reason: "b" });
    await inventory.setStatus({ petId, status: "sold", reason: "c" });
    await inventory.adjust({ petId, delta: 3, requestId: "client-history-1", reason: "d" });
    const many = { adjustments: [{ petId, delta: -1, reason: "e" }], requestId: "client-history-2" };
    await inventory.adjustMany(many);
    const revision = await inventory.remove(petId, { reason: "f" });
    const actor = { kind: "internal", role: "", name: "" };
    const then = (quantity: number, status: string) => ({ quantity, status });
    const changes = await inventory.history({ petId });
    expect(changes.map(({ reason, kind, before, after }) => [reason, kind, before, after])).toEqual([
      ["f", "remove", then(4, "sold"), undefined],
      ["e", "adjust", then(5, "sold"), then(4, "sold")],
      ["d", "adjust", then(2, "sold"), then(5, "sold")],
      ["c", "status", then(2, "available"), then(2, "sold")],
      ["b", "set", then(1, "available"), then(2, "available")],
      ["a", "create", undefined, then(1, "available")],
    ]);
    expect(changes.map((change) => change.revision)).toEqual([0n, 1n, 2n, 3n, 4n, 5n].map((n) => revision - n));
    for (const { madeAt, ...change } of changes) {
      expect(change).toMatchObject({ petId, actor, originRequestId: undefined });
      expect(Math.abs(madeAt.getTime() - Date.now())).toBeLessThan(120_000);
    }
    const next = await inventory.history({ petId, limit: 2, beforeRevision: changes[1]!.revision });
    expect(next).toEqual(changes.slice(2, 4));
    expect((await inventory.history({ limit: 1 }))[0]).toEqual(changes[0]); // of all entries
    expect(await failureOf(inventory.history({ petId: -51n }))).toBe("NOT_FOUND");
    const long = { petId: 1n, quantity: 1, reason: "x".repeat(201) };
    expect(await failureOf(inventory.update(long))).toBe("INVALID_ARGUMENT");
    expect(await failureOf(inventory.update({ ...long, reason: "a\tb" }))).toBe("INVALID_ARGUMENT");
    const tooMany = Array.from({ length: 101 }, (_, i) => ({ petId: BigInt(i), delta: 1 }));
    for (const adjustments of [tooMany, [tooMany[0]!, tooMany[0]!]]) {
      expect(await failureOf(inventory.adjustMany({ adjustments, requestId: "x" }))).toBe("INVALID_ARGUMENT");
    }
  });

  test("the internal client lists every entry, and stops when its reader stops", async () => {
    const pages = await Array.fromAsync(inventory.list());
    expect(pages.flatMap(({ items }) => items.map(({ petId }) => petId))).toHaveLength(entryCount);
    for await (const { items } of inventory.list()) if (items.length > 0) break;
  });

  test("the client throws an InventoryError with the status and the message of the service", async () => {
    await expect(inventory.get(-1n)).rejects.toMatchObject({
      name: "InventoryError",
      code: "NOT_FOUND",
      message: "NOT_FOUND: there is no entry -1",
    });
    expect(await failureOf(inventory.update({ petId: 1n, quantity: -1 }))).toBe("INVALID_ARGUMENT");
    expect(await failureOf(inventory.update({ petId: 1n, quantity: 1, expectedRevision: 0n }))).toBe("ABORTED");
    expect(await failureOf(inventory.update({ petId: 1n, quantity: 1, expectedRevision: [0n, 9n] }))).toBe("ABORTED");
    expect(await failureOf(inventory.create({ petId: 1n, quantity: 1 }))).toBe("ALREADY_EXISTS");
  });

  test("the client ends a call at its deadline or signal, and begins none whose signal has fired", async () => {
    const position = await here();
    await system.inventory.kill("SIGSTOP");
    try {
      const change = { petId: 1n, quantity: 3 };
      expect(await failureOf(inventory.update(change, { timeoutMs: 200 }))).toBe("DEADLINE_EXCEEDED");
      const giveUp = new AbortController();
      const { signal } = giveUp;
      const waiting = [
        inventory.changesAfter(position, { signal }),
        inventory.update(change, { signal }),
        Array.fromAsync(inventory.list({ signal })),
        Array.fromAsync(inventory.watch(position, { signal })),
      ];
      setImmediate(() => giveUp.abort("not wanted"));
      expect(await Promise.all(waiting.map(failureOf))).toEqual(waiting.map(() => "not wanted"));
      expect(await failureOf(inventory.get(1n, { signal }))).toBe("not wanted");
      expect(await failureOf(Array.fromAsync(inventory.list({ signal })))).toBe("not wanted");
    } finally {
      await system.inventory.kill("SIGCONT");
    }
    await inventory.update({ petId: 1n, quantity: 4 }); // after the ones above, which may have reached the service
  });

  test("the internal client accepts an undefined timeout and very long ones", async () => {
    for (const timeoutMs of [undefined, 3e9, Number.MAX_SAFE_INTEGER, Number.POSITIVE_INFINITY]) {
      expect(await failureOf(inventory.update({ petId: 1n, quantity: 4 }, { timeoutMs }))).toBe("OK");
      expect(await failureOf(Array.fromAsync(inventory.list({ silenceTimeoutMs: timeoutMs })))).toBe("OK");
    }
  });

  test("the client refuses names of arguments that it does not know: a condition may be misspelt", async () => {
    const before = await inventory.get(big);
    const update = (names: object) => failureOf(inventory.update({ ...before, quantity: 77, ...names }));
    expect(await update({ expected_revision: 1n })).toBe("INVALID_ARGUMENT");
    expect(await failureOf(inventory.get(big, { timeout: 1 } as object))).toBe("INVALID_ARGUMENT");
    expect(await inventory.get(big)).toEqual(before);
    expect(await update({ expectedRevision: before.revision })).toBe("OK");
  });

  test("the client refuses arguments that cannot be sent with INVALID_ARGUMENT, and sends nothing", async () => {
    const nothing = undefined as never;
    const position = await here();
    const refused = [
      inventory.get(1n, { timeoutMs: Number.NaN }),
      inventory.get(2n ** 63n),
      inventory.get(1 as never),
      inventory.update({ petId: 1n, quantity: 3e9 }),
      inventory.update({ petId: 1n, quantity: 1.5 }),
      inventory.adjust({ petId: 1n, delta: 1, requestId: nothing }),
      inventory.adjust({ petId: 1n, delta: 1, requestId: null as never }),
      inventory.adjust({ petId: 1n, delta: 3e9, requestId: "far-too-many" }),
      inventory.adjustMany({ adjustments: [], requestId: "none" }),
      inventory.adjustMany({ adjustments: [{ petId: 1n, delta: 1 }], requestId: nothing }),
      inventory.adjustMany({ adjustments: [{ petId: 1n, delta: 1, expectedRevision: [] }], requestId: "a" }),
      inventory.history({ limit: 0 }),
      inventory.history({ limit: 1_001 }),
      inventory.history({ petID: 1n } as never),
      inventory.update({ petId: 1n, quantity: 3, reason: 7 as never }),
      inventory.setStatus({ petId: 1n, status: "reserved" as never }),
      Array.fromAsync(inventory.list({ silenceTimeoutMs: Number.NaN })),
      Array.fromAsync(inventory.watch({ ...position, revision: 2n ** 63n })),
    ];
    expect(await Promise.all(refused.map(failureOf))).toEqual(refused.map(() => "INVALID_ARGUMENT"));
    expect(await here()).toEqual(position);
  });

  test("the internal client names the argument that is wrong, and what it must be", async () => {
    const wrong = (value: unknown) => value as never;
    const faults: [Promise<unknown>, string][] = [
      [inventory.get(wrong("1001")), "petId must be a bigint, such as 1001n"],
      [inventory.remove(wrong(undefined)), "petId must be a bigint, such as 1001n"],
      [inventory.get(2n ** 63n), "petId must be from -2^63 to 2^63 - 1"],
      [inventory.getMany(wrong("12")), "petIds must be an array of bigints"],
      [inventory.getMany(wrong([1n, 2])), "petIds[1] must be a bigint, such as 1001n"],
      [inventory.update(wrong({ petId: 1n })), "quantity must be an integer from 0 to 2147483647"],
      [inventory.update(wrong({ petId: 1n, quantity: "5" })), "quantity must be an integer from 0 to 2147483647"],
      [inventory.update(wrong({ petId: "1", quantity: 5 })), "petId must be a bigint, such as 1001n"],
      [
        inventory.update(wrong({ petId: 1n, quantity: 5, expectedRevision: "3" })),
        "expectedRevision must be a bigint, such as 1001n",
      ],
      [
        inventory.update(wrong({ petId: 1n, quantity: 5, expectedRevision: [3n, 4] })),
        "expectedRevision[1] must be a bigint, such as 1001n",
      ],
      [
        inventory.update({ petId: 1n, quantity: 5, expectedRevision: [] }),
        "expectedRevision must be an array of 1 to 20",
      ],
      [inventory.update(wrong({ petId: 1n, quantity: 5, idempotencyKey: 5 })), "idempotencyKey must be a string"],
      [inventory.create(wrong({ petId: 1n, quantity: 5n })), "quantity must be an integer from 0 to 2147483647"],
      [
        inventory.create(wrong({ petId: 1n, quantity: 5, status: "gone" })),
        "status must be one of available, pending, sold",
      ],
      [inventory.setStatus(wrong({ petId: 1n, status: "gone" })), "status must be one of available, pending, sold"],
      [
        inventory.setStatus(wrong({ petId: 1n, status: "sold", expectedRevision: 3 })),
        "expectedRevision must be a bigint, such as 1001n",
      ],
      [
        inventory.adjust(wrong({ petId: 1n, delta: "x", requestId: "a" })),
        "delta must be an integer from -2147483648 to 2147483647",
      ],
      [inventory.adjust(wrong({ petId: 1n, delta: 1 })), "requestId must be a string"],
      [Array.fromAsync(inventory.watch(wrong(undefined))), "epoch must be a string"],
      [
        Array.fromAsync(inventory.watch(wrong({ epoch: "e", revision: 1 }))),
        "revision must be a bigint, such as 1001n",
      ],
    ];
    const found = faults.map(([call]) => call.catch(({ name, message }: Error) => `${name} ${message}`));
    const expected = faults.map(([, message]) => `InventoryError INVALID_ARGUMENT: ${message}`);
    expect(await Promise.all(found)).toEqual(expected);
  });

  test("the internal client refuses an address that is none when it is made", () => {
    for (const address of [undefined, "", 50_051, "http://127.0.0.1:50051", "https://h:1", "grpc://h:1"]) {
      expect(() => createInventoryClient({ address: address as never })).toThrow(
        /address must be a gRPC target, such as/,
      );
    }
    for (const address of ["h:1", "dns:///h:1", "unix:///tmp/x", "unix:x", "ipv4:10.0.0.1:1"]) {
      createInventoryClient({ address }).close();
    }
  });

  test("the internal client watches changes across a restart of the service without a gap", async () => {
    const breaks: string[] = [];
    const next = watchFrom(await here(), { onBreak: ({ code }) => void breaks.push(code) });
    expect(await next()).toMatchObject({ kind: "changes", changed: [] });
    await inventory.update({ petId: 1n, quantity: 10 });
    expect(await next()).toMatchObject({ changed: [{ petId: 1n, quantity: 10 }] });
    await system.inventory.kill("SIGKILL");
    await system.restartInventory();
    // The retries of a read outlast the wait of a channel before it connects again.
    expect(await inventory.get(1n)).toMatchObject({ quantity: 10 });
    await inventory.update({ petId: 2n, quantity: 11 });
    await inventory.remove(3n);
    const seen: WatchEvent[] = [];
    while (!seen.some((event) => event.kind === "changes" && event.removed.includes(3n))) seen.push(await next());
    expect(seen).toContainEqual(expect.objectContaining({ changed: [expect.objectContaining({ quantity: 11 })] }));
    const again = seen.filter((event) => event.kind === "changes" && event.changed.some(({ petId }) => petId === 1n));
    expect(again).toEqual([]);
    expect(breaks.length).toBeGreaterThan(0);
  });

  test("the internal client ends a watch with a reset after the stock was restored", async () => {
    const next = watchFrom(await here());
    await next();
    const env = { INVENTORY_DATABASE_URL: system.databaseUrls.inventory };
    await runScript({ script: "inventory-svc/cli/stock.ts", args: ["restored"], env });
    expect(await next()).toEqual({ kind: "reset" });
    expect(await next()).toBeUndefined();
  });

  test("the internal client ends its watches when it is closed, and reports no break", async () => {
    const other = createInventoryClient({ address: system.inventory.listen });
    const breaks: string[] = [];
    const events = other.watch(await here(), { onBreak: ({ code }) => void breaks.push(code) });
    const begun = events[Symbol.asyncIterator]();
    await begun.next();
    const waiting = [begun.next(), Array.fromAsync(other.watch(await here()))].map(failureOf);
    other.close();
    expect(await Promise.all(waiting)).toEqual(["CANCELLED", "CANCELLED"]);
    expect(breaks).toEqual([]);
  });

  test("the client ends new calls with CANCELLED once it is closed, and finishes those before", async () => {
    const other = createInventoryClient({ address: system.inventory.listen });
    const pages = other.list()[Symbol.asyncIterator]();
    await pages.next();
    const late = other.list();
    other.close();
    const position = { epoch: "e", revision: 1n };
    const calls = {
      get: other.get(1n),
      getMany: other.getMany([1n]),
      update: other.update({ petId: 1n, quantity: 1 }),
      adjust: other.adjust({ petId: 1n, delta: 1, requestId: "closed" }),
      setStatus: other.setStatus({ petId: 1n, status: "sold" }),
      create: other.create({ petId: -9n, quantity: 1 }),
      remove: other.remove(1n),
      adjustMany: other.adjustMany({ adjustments: [{ petId: 1n, delta: 1 }], requestId: "closed" }),
      history: other.history(),
      changesAfter: other.changesAfter(position),
      list: Array.fromAsync(late),
      watch: Array.fromAsync(other.watch(position)),
    };
    const ends = await Promise.all(
      Object.values(calls).map((call) => call.catch(({ code, mayHaveHappened }) => [code, mayHaveHappened])),
    );
    expect(ends).toEqual(Object.keys(calls).map(() => ["CANCELLED", false]));
    const rest: unknown[] = [];
    for (let page = await pages.next(); !page.done; page = await pages.next()) rest.push(...page.value.items);
    expect(rest).toEqual((await Array.fromAsync(inventory.list())).flatMap(({ items }) => items));
  });
});

describe("failing services", () => {
  const stack = suiteStack();
  const counts = new Map<string, number>();
  let failure: { code: status; metadata?: Metadata };
  let inventory: InventoryClient;

  beforeAll(async () => {
    const count = (what: string) => counts.set(what, (counts.get(what) ?? 0) + 1);
    // Every call fails in the same way: a unary call through its callback, a stream by an event.
    const fail = (call: { getPath(): string; emit?(event: string, error: object): void }, done?: unknown) => {
      count(call.getPath());
      const error = { details: "no", ...failure };
      if (typeof done === "function") done(error);
      else call.emit?.("error", error);
    };
    // So does every change of a stream, in its result.
    const applyChanges: handleBidiStreamingCall<ApplyChangesRequest, ApplyChangesResponse> = (call) => {
      call.sendMetadata(new Metadata());
      call.on("data", ({ groups }: ApplyChangesRequest) => {
        const [bytes] = failure.metadata?.get("grpc-status-details-bin") ?? [];
        const details = bytes ? Status.decode(bytes as Buffer).details : [];
        const refused = { item: undefined, replayed: false, refusal: { code: failure.code, message: "no", details } };
        const changes = groups.flatMap((group) => group.changes);
        for (const { delta } of changes) count(delta === undefined ? "an update" : "an adjustment");
        call.write({ results: changes.map(() => refused) });
      });
    };
    const names = Object.keys(InventoryServiceService);
    const server = createRpcServer({
      handlers: { ...Object.fromEntries(names.map((name) => [name, fail])), applyChanges } as never,
      credentials: ServerCredentials.createInsecure(),
      maxConnectionAgeMs: 60_000,
      connectionGraceMs: 100,
    });
    stack.defer(() => server.close(0));
    inventory = createInventoryClient({ address: await server.listen({ host: "127.0.0.1", port: 0 }) });
    stack.defer(() => inventory.close());
  });
  beforeEach(() => counts.clear());
  const countOf = (name: keyof InventoryServiceService) => counts.get(InventoryServiceService[name].path) ?? 0;
  const position = { epoch: "e", revision: 1n };

  test("a service that fails gets reads of entries and adjustments again, and nothing else", async () => {
    failure = { code: status.UNAVAILABLE };
    const calls = {
      getInventoryItem: () => inventory.get(1n),
      batchGetInventoryItems: () => inventory.getMany([1n]),
      setStatus: () => inventory.setStatus({ petId: 1n, status: "sold" }),
      listInventory: () => Array.fromAsync(inventory.list()),
      createInventoryItem: () => inventory.create({ petId: 1n, quantity: 1 }),
      removeInventoryItem: () => inventory.remove(1n),
      "an adjustment": () => inventory.adjust({ petId: 1n, delta: 1, requestId: "a" }, { timeoutMs: 2_000 }),
      "an update": () => inventory.update({ petId: 1n, quantity: 1 }, { timeoutMs: 2_000 }),
    };
    const ends = await Promise.all(Object.values(calls).map((call) => failureOf(call())));
    expect(new Set(ends)).toEqual(new Set(["UNAVAILABLE"]));
    for (const name of ["getInventoryItem", "batchGetInventoryItems"] as const) {
      expect([name, countOf(name)]).toEqual([name, 5]);
    }
    expect(counts.get("an adjustment")).toBeGreaterThan(1);
    expect(counts.get("an update")).toBe(1);
    expect(countOf("listInventory")).toBe(1);
    expect(countOf("setStatus")).toBe(1);
    expect(countOf("createInventoryItem")).toBe(1);
    expect(countOf("removeInventoryItem")).toBe(1);
  });

  test.each([
    ["an address without a service", async () => `127.0.0.1:${await freePort()}`],
    ["a name without an address", async () => "dns:///nowhere.invalid:50051"],
  ])("a call to %s was certainly not sent, and says so", async (_name, address) => {
    // Updates are tried again for 0.5 s. No call meets its deadline: the look-up of a name may take seconds.
    const away = createInventoryClient({ address: await address(), timeoutMs: 500 });
    stack.defer(() => away.close());
    const options = { timeoutMs: 30_000 };
    const calls = [
      away.setStatus({ petId: 1n, status: "sold" }, options),
      away.create({ petId: 1n, quantity: 1 }, options),
      away.remove(1n, options),
      away.get(1n, options),
      away.history({}, options),
      away.update({ petId: 1n, quantity: 1 }, options),
    ];
    const ends = await Promise.all(
      calls.map((call) => call.catch(({ code, errorReason, mayHaveHappened }) => [code, errorReason, mayHaveHappened])),
    );
    expect(ends).toEqual(calls.map(() => ["UNAVAILABLE", "NOT_SENT", false]));
  });

  test("a change that was sent and lost has an unknown outcome", async () => {
    failure = { code: status.UNAVAILABLE };
    const lost = inventory.setStatus({ petId: 1n, status: "sold" });
    await expect(lost).rejects.toMatchObject({ code: "UNAVAILABLE", errorReason: undefined, mayHaveHappened: true });
  });

  test("a service that fails is not watched again after PERMISSION_DENIED", async () => {
    failure = { code: status.PERMISSION_DENIED };
    expect(await failureOf(Array.fromAsync(inventory.watch(position)))).toBe("PERMISSION_DENIED");
    expect(countOf("watchInventory")).toBe(1);
  });

  test("a service that fails gives its reason and details to the caller", async () => {
    const metadata = new Metadata();
    metadata.set("grpc-status-details-bin", Buffer.from(statusWithErrorInfo, "base64"));
    failure = { code: status.ABORTED, metadata };
    for (const call of [inventory.update({ petId: 1n, quantity: 1 }), inventory.remove(1n)]) {
      await expect(call).rejects.toMatchObject({
        code: "ABORTED",
        errorReason: "REVISION_MISMATCH",
        details: { pet_id: "7", revision: "12" },
      });
    }
    metadata.set("grpc-status-details-bin", Buffer.from("nonsense"));
    await expect(inventory.get(1n)).rejects.toMatchObject({ code: "ABORTED", errorReason: undefined, details: {} });
  });
});
