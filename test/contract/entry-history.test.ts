import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { PetStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { expectError, header } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { runScript } from "../support/processes.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type System, startSystem, type TestKey } from "../support/system.ts";

interface Change {
  readonly etag: string;
  readonly at: string;
  readonly kind: string;
  readonly quantityBefore: number | null;
  readonly quantityAfter: number | null;
  readonly by: string;
  readonly requestId: string | null;
  readonly reason: string | null;
}

interface History {
  readonly changes: Change[];
  readonly next: string | null;
}

const largePetId = 9_007_199_254_740_993n;

describe("GET /v1/inventory/{petId}/history", () => {
  const stack = suiteStack();
  let system: System;
  let second: string;
  let own: TestKey;
  let other: TestKey;

  beforeAll(async () => {
    const petIds = [largePetId, ...Array.from({ length: 20 }, (_, i) => BigInt(i + 1))];
    system = await startSystem({ seed: petIds.map((petId) => ({ petId, quantity: 5, status: "available" })) });
    stack.defer(() => system.close());
    second = (await system.startGateway()).listen;
    own = await system.issueKey({ account: "own shop", plan: "enterprise", limits: { perMinute: 1e6, perDay: 1e6 } });
    other = await system.issueKey({
      account: "other shop",
      plan: "enterprise",
      limits: { perMinute: 1e6, perDay: 1e6 },
    });
  });

  const read = (petId: bigint | number | string, query = "", method = "GET", address = system.address) =>
    callApi(address, {
      method,
      path: `/v1/inventory/${petId}/history${query}`,
      headers: { authorization: `Bearer ${own.key}` },
    });
  const historyOf = async (petId: bigint | number, query = "") => {
    const answer = await read(petId, query);
    expect(answer.status).toBe(200);
    return answer.json<History>();
  };
  const write = (key: string, method: string, path: string, body: unknown, headers: Record<string, string> = {}) =>
    callApi(system.address, {
      method,
      path: `/v1/inventory/${path}`,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  const patch = (petId: bigint | number, body: object, headers: Record<string, string> = {}) =>
    write(own.key, "PATCH", String(petId), body, headers);
  let ids = 0;
  const keyed = () => ({ "idempotency-key": `history-${ids++}` });
  const state = (before: number | null, after: number | null, statuses = ["available", "available"]) => ({
    quantityBefore: before,
    quantityAfter: after,
    statusBefore: before === null ? null : statuses[0],
    statusAfter: after === null ? null : statuses[1],
  });
  const grpc = <Req, Res>(method: (request: Req, done: (error: Error | null, response: Res) => void) => unknown) =>
    promisify(method.bind(system.client)) as (request: Req) => Promise<Res>;

  test("has every change, the newest first, with what it did, when, by whom and why", async () => {
    const startedMs = Date.now();
    const set = await patch(1, { quantity: 9, reason: "stocktaking" }, { "x-request-id": "own.request-1" });
    const adjusted = await write(own.key, "POST", "adjustments", [{ petId: 1, delta: -2, reason: "order 17" }], {
      ...keyed(),
      "x-request-id": "own.request-2",
    });
    const updated = await write(own.key, "POST", "updates", [
      { petId: 2, quantity: 1 },
      { petId: 1, quantity: 8, reason: "returned" },
    ]);
    const answer = await read(1);
    expect(header(answer, "Content-Type")).toBe("application/json");
    expect(header(answer, "Cache-Control")).toBe("private, no-cache");
    expect(answer.headers).not.toHaveProperty("etag");
    const { changes, next } = answer.json<History>();
    const mine = { by: "you", keyId: own.keyId, at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/) };
    expect({ changes, next }).toEqual({
      changes: [
        {
          etag: updated.json<{ etag: string }[]>()[1]!.etag,
          kind: "set",
          ...state(7, 8),
          ...mine,
          requestId: header(updated, "X-Request-Id"),
          reason: "returned",
        },
        {
          etag: adjusted.json<{ etag: string }[]>()[0]!.etag,
          kind: "adjust",
          ...state(9, 7),
          ...mine,
          requestId: "own.request-2",
          reason: "order 17",
        },
        {
          etag: header(set, "ETag"),
          kind: "set",
          ...state(5, 9),
          ...mine,
          requestId: "own.request-1",
          reason: "stocktaking",
        },
        {
          etag: expect.stringMatching(/^"r\d+"$/),
          kind: "import",
          ...state(null, 5),
          by: "operator",
          at: mine.at,
          requestId: null,
          reason: null,
        },
      ],
      next: null,
    });
    for (const { at } of changes.slice(0, 3)) expect(Math.abs(Date.parse(at) - startedMs)).toBeLessThan(60_000);
    expect(
      changes
        .map(({ at }) => at)
        .toSorted()
        .toReversed(),
    ).toEqual(changes.map(({ at }) => at));
  });

  test("has the kinds of all changes that internal callers make, and hides what they say of them", async () => {
    const { PET_STATUS_SOLD, PET_STATUS_PENDING } = PetStatus;
    const reason = "secret of the warehouse";
    const petId = 501n;
    await grpc(system.client.createInventoryItem)({ petId, quantity: 3, status: PET_STATUS_PENDING, reason });
    await grpc(system.client.setStatus)({ petId, status: PET_STATUS_SOLD, expectedRevision: undefined, reason });
    const update = { petId, quantity: 4, expectedRevisions: [], idempotencyKey: undefined, reason };
    await grpc(system.client.updateInventory)(update);
    await grpc(system.client.adjustInventory)({ petId, delta: 2, requestId: "internal-1", reason });
    const adjustment = { petId, delta: -1, expectedRevisions: [], reason };
    await grpc(system.client.batchAdjustInventory)({ adjustments: [adjustment], requestId: "internal-2" });
    await grpc(system.client.removeInventoryItem)({ petId, reason });
    const answer = await read(petId);
    expect(answer.json<History>().changes.map(({ etag: _, at: __, ...change }) => change)).toEqual(
      [
        { kind: "create", ...state(null, 3, ["", "pending"]) },
        { kind: "status", ...state(3, 3, ["pending", "sold"]) },
        { kind: "set", ...state(3, 4, ["sold", "sold"]) },
        { kind: "adjust", ...state(4, 6, ["sold", "sold"]) },
        { kind: "adjust", ...state(6, 5, ["sold", "sold"]) },
        { kind: "remove", ...state(5, null, ["sold"]) },
      ]
        .map((change) => ({ ...change, by: "internal", requestId: null, reason: null }))
        .toReversed(),
    );
    for (const secret of [reason, "internal-1", "internal-2"]) expect(answer.text).not.toContain(secret);
  });

  test("shows of another account nothing but that it was another one", async () => {
    const secrets = { "x-request-id": "their.request", ...keyed() };
    await write(other.key, "PATCH", "3", { quantity: 1, reason: "their reason" }, secrets);
    const answer = await read(3);
    expect(answer.json<History>().changes[0]).toEqual({
      etag: expect.any(String),
      at: expect.any(String),
      kind: "set",
      ...state(5, 1),
      by: "other",
      requestId: null,
      reason: null,
    });
    for (const secret of ["other shop", other.accountId, other.keyId, "their"])
      expect(answer.text).not.toContain(secret);
    const theirs = await callApi(system.address, {
      path: "/v1/inventory/3/history",
      headers: { authorization: `Bearer ${other.key}` },
    });
    expect(theirs.json<History>().changes[0]).toMatchObject({ by: "you", keyId: other.keyId, reason: "their reason" });
  });

  test("names the key of the account that made a change, also another one than that of the request", async () => {
    const twin = await system.issueKey({ account: "own shop" });
    await write(twin.key, "PATCH", "4", { quantity: 1 });
    const { changes } = await historyOf(4);
    expect(changes[0]).toMatchObject({ by: "you", keyId: twin.keyId });
  });

  test("an import of the operators is one, with the state that it found", async () => {
    const folder = await temporaryFolder("import");
    stack.defer(folder.remove);
    const file = join(folder.path, "stock.csv");
    await writeFile(file, "petId,quantity,status\n5,77,sold\n6,5,available\n502,1,pending\n");
    const env = { INVENTORY_DATABASE_URL: system.databaseUrls.inventory };
    const done = await runScript({ script: "inventory-svc/cli/stock.ts", args: ["import", file], env });
    expect(done).toMatchObject({ code: 0 });
    const imported = { kind: "import", by: "operator", requestId: null, reason: null };
    expect((await historyOf(5)).changes[0]).toMatchObject({ ...imported, ...state(5, 77, ["available", "sold"]) });
    expect((await historyOf(6)).changes).toHaveLength(1); // what was so already is no change
    expect((await historyOf(502)).changes).toMatchObject([{ ...imported, ...state(null, 1, ["", "pending"]) }]);
  });

  test("has no updates that changed nothing, with a key or without, and none that was refused", async () => {
    await patch(7, { quantity: 5 });
    const same = keyed();
    for (let i = 0; i < 2; i++) await patch(7, { quantity: 5 }, same);
    await patch(7, { quantity: 6 }, { "if-match": '"r1"' });
    await write(own.key, "POST", "adjustments", [{ petId: 7, delta: -6 }], keyed());
    const once = keyed();
    for (let i = 0; i < 2; i++) await write(own.key, "POST", "adjustments", [{ petId: 7, delta: -5 }], once);
    expect((await historyOf(7)).changes.map(({ kind, quantityAfter }) => [kind, quantityAfter])).toEqual([
      ["adjust", 0],
      ["import", 5],
    ]);
  });

  test("of an adjustment of many pets is at each of them, with one request id", async () => {
    const headers = { ...keyed(), "x-request-id": "both" };
    const request = [8, 9].map((petId) => ({ petId, delta: -petId / petId, reason: `pet ${petId}` }));
    await write(own.key, "POST", "adjustments", request, headers);
    for (const petId of [8, 9]) {
      const { changes } = await historyOf(petId);
      expect(changes[0]).toMatchObject({ kind: "adjust", requestId: "both", reason: `pet ${petId}`, ...state(5, 4) });
    }
  });

  test("is exact for a petId beyond 2^53, and of that pet alone", async () => {
    await patch(largePetId, { quantity: 6 });
    expect((await historyOf(largePetId)).changes[0]).toMatchObject(state(5, 6));
    expectError(await read(largePetId - 1n), 404, "not_found");
  });

  describe("pages", () => {
    beforeAll(async () => {
      for (let quantity = 100; quantity < 124; quantity++) await patch(10, { quantity });
    });
    const all = async () => (await historyOf(10, "?limit=100")).changes;

    test("has 20 changes unless asked for other numbers, 1 to 100", async () => {
      expect(await all()).toHaveLength(25);
      expect((await historyOf(10)).changes).toEqual((await all()).slice(0, 20));
      expect((await historyOf(10, "?limit=1")).changes).toEqual((await all()).slice(0, 1));
    });

    test.each([1, 3, 5, 12, 24, 25, 26])("of %i lead to each change once, and end with next: null", async (limit) => {
      const found: Change[] = [];
      let pages = 0;
      let next: string | null = null;
      do {
        const before: string = next === null ? "" : `&before=${encodeURIComponent(next)}`;
        const page = await historyOf(10, `?limit=${limit}${before}`);
        expect(page.changes.length).toBeLessThanOrEqual(limit);
        found.push(...page.changes);
        ({ next } = page);
        pages += 1;
      } while (next !== null);
      expect(found).toEqual(await all());
      expect(pages).toBe(Math.ceil(25 / limit));
    });

    test("a page stays the same when there are newer changes", async () => {
      const { changes, next } = await historyOf(11, "?limit=1");
      expect(next).toBeNull();
      const [{ etag }] = changes as [Change];
      await patch(11, { quantity: 50 });
      const after = (await historyOf(11, "?limit=1")).changes[0]!.etag;
      expect((await historyOf(11, `?before=${encodeURIComponent(after)}`)).changes).toEqual(changes);
      expect(await historyOf(11, `?before=${encodeURIComponent(etag)}`)).toEqual({ changes: [], next: null });
    });

    test("takes before as the tag is, bare, or made weak by a proxy, and any revision", async () => {
      const [, newest] = await all();
      const bare = newest!.etag.slice(1, -1);
      const expected = (await all()).slice(2);
      for (const before of [newest!.etag, bare, `W/${newest!.etag}`]) {
        const page = await historyOf(10, `?limit=100&before=${encodeURIComponent(before)}`);
        expect(page.changes).toEqual(expected);
      }
      expect((await historyOf(10, "?limit=100&before=r9223372036854775807")).changes).toEqual(await all());
      expect(await historyOf(10, "?before=r0")).toEqual({ changes: [], next: null });
    });

    test.each([
      ["limit=0", /^limit must be a whole number from 1 to 100/],
      ["limit=101", /^limit must be/],
      ["limit=-1", /^limit must be/],
      ["limit=1.5", /^limit must be/],
      ["limit=", /^limit must be/],
      ["limit=5&limit=6", /^limit may be there once/],
      ["before=", /^before must be one ETag of an entry/],
      ["before=625", /^before must be/],
      ["before=r-1", /^before must be/],
      ["before=r9223372036854775808", /^before must be/],
      ["before=%22r1%22,%22r2%22", /^before must be/],
      ["before=r1&before=r2", /^before may be there once/],
    ])("with ?%s is 400 and says why", async (query, message) => {
      expectError(await read(10, `?${query}`), 400, "invalid_request", message);
    });
  });

  test("HEAD has the headers without the body", async () => {
    const answer = await read(10, "?limit=3");
    const head = await read(10, "?limit=3", "HEAD");
    expect(head).toMatchObject({ status: 200, text: "" });
    for (const name of ["Content-Length", "Content-Type", "Cache-Control"]) {
      expect(header(head, name)).toBe(header(answer, name));
    }
    expect(await read(4_711, "", "HEAD")).toMatchObject({ status: 404, text: "" });
  });

  test.each(["POST", "PATCH", "PUT", "DELETE"])("is 405 for %s", async (method) => {
    const answer = await read(10, "", method);
    expectError(answer, 405, "method_not_allowed");
    expect(header(answer, "Allow")).toBe("GET, HEAD");
  });

  test.each(["x", "01", "1.0", "9223372036854775808"])("is 400 for the petId %s", async (petId) => {
    expectError(await read(petId), 400, "invalid_request", "petId must be an int64 in decimal, as in 42.");
  });

  test("needs the scope inventory:read, and counts once against the limits", async () => {
    const writer = await system.issueKey({ scopes: ["inventory:write"] });
    const path = "/v1/inventory/10/history?limit=100";
    const headersOf = (key: string) => ({ authorization: `Bearer ${key}` });
    expectError(await callApi(system.address, { path, headers: headersOf(writer.key) }), 403, "insufficient_scope");
    const reader = await system.issueKey({ plan: "free", scopes: ["inventory:read"] });
    const answer = await callApi(system.address, { path, headers: headersOf(reader.key) });
    expect(answer).toMatchObject({ status: 200, headers: { "x-ratelimit-remaining": "59" } });
  });

  test("shows each acknowledged change at once, through another gateway too", async () => {
    for (let quantity = 200; quantity < 230; quantity++) {
      const etag = header(await patch(12, { quantity }), "ETag");
      const answer = await read(12, "?limit=1", "GET", second);
      expect(answer.json<History>().changes).toMatchObject([{ etag, quantityAfter: quantity }]);
    }
  });

  test("is there while there is an entry or a kept change of it, and 404 otherwise", async () => {
    const forget = async (petId: bigint) => {
      const db = openDatabase(system.databaseUrls.inventory);
      await db("stock_ledger")
        .where("pet_id", petId as never)
        .delete();
      await db.destroy();
    };
    await forget(13n);
    expect(await historyOf(13)).toEqual({ changes: [], next: null });
    expect(await historyOf(13, "?before=r1")).toEqual({ changes: [], next: null });
    await grpc(system.client.removeInventoryItem)({ petId: 13n, reason: undefined });
    expect((await historyOf(13)).changes).toMatchObject([{ kind: "remove" }]);
    expect(await historyOf(13, "?before=r1")).toEqual({ changes: [], next: null });
    await forget(13n);
    expectError(await read(13), 404, "not_found");
    expectError(await read(13, "?before=r1"), 404, "not_found");
    expectError(await read(4_711), 404, "not_found");
  });

  test("is 404 where no history is kept, and what happens once happens once all the same", async () => {
    await using closing = new AsyncDisposableStack();
    const seed = [{ petId: 1n, quantity: 5, status: "sold" as const }];
    const off = await startSystem({ seed, inventoryEnv: { INVENTORY_HISTORY_DAYS: "0" } });
    closing.defer(() => off.close());
    const authorization = `Bearer ${off.keys.enterprise}`;
    const headers = { authorization, "content-type": "application/json", "idempotency-key": "a" };
    const adjust = { method: "POST", path: "/v1/inventory/adjustments", headers, body: '[{"petId":1,"delta":-1}]' };
    const first = await callApi(off.address, adjust);
    const again = await callApi(off.address, adjust);
    expect(again).toMatchObject({ status: 200, text: first.text, headers: { "idempotency-replayed": "true" } });
    for (const petId of [1, 4_711]) {
      const answer = await callApi(off.address, { path: `/v1/inventory/${petId}/history`, headers: { authorization } });
      expectError(answer, 404, "not_found");
    }
  });

  describe("reason", () => {
    const longest = ["x".repeat(200), "🐈".repeat(200), "ä\u2028\u00a0 '\"\\<script>\u{10ffff}"];

    test.each(longest)("is kept as it is: %j", async (reason) => {
      await patch(14, { quantity: 100, reason });
      await write(own.key, "POST", "updates", [{ petId: 14, quantity: 101, reason }]);
      await write(own.key, "POST", "adjustments", [{ petId: 14, delta: 1, reason }], keyed());
      const { changes } = await historyOf(14, "?limit=3");
      expect(changes.map((change) => change.reason)).toEqual([reason, reason, reason]);
    });

    test.each([
      ["0 characters", ""],
      ["201 characters", "x".repeat(201)],
      ["201 characters of two units", "🐈".repeat(201)],
      ["a line break", "a\nb"],
      ["DEL", "a\u007f"],
      ["a number", 7],
      ["null", null],
      ["an object", {}],
    ])("of %s is 400 on PATCH and on updates, and names the member", async (_what, reason) => {
      const fault = "must be a string of 1 to 200 characters without control characters";
      const quantity = 987_654;
      expectError(await patch(15, { quantity, reason }), 400, "invalid_request", new RegExp(`^reason ${fault}`));
      const updates = [
        { petId: 16, quantity },
        { petId: 15, quantity, reason },
      ];
      const answer = await write(own.key, "POST", "updates", updates);
      expectError(answer, 400, "invalid_request", new RegExp(`^updates\\[1\\]\\.reason ${fault}`));
      for (const petId of [15n, 16n]) expect(await system.stored(petId)).toMatchObject({ quantity: 5 });
    });

    test("makes another request of an update with a key", async () => {
      const key = keyed();
      await patch(17, { quantity: 1, reason: "a" }, key);
      expect(await patch(17, { quantity: 1, reason: "a" }, key)).toMatchObject({ status: 200 });
      for (const reason of ["b", undefined]) {
        expectError(await patch(17, { quantity: 1, reason }, key), 422, "idempotency_key_reused");
      }
    });

    test("is in no log of either tier", async () => {
      const reason = "only for the ledger";
      await patch(18, { quantity: 1, reason });
      await write(own.key, "POST", "adjustments", [{ petId: 18, delta: -9, reason }], keyed());
      const logs = [...system.gateways, system.inventory].map((process) => process.output());
      expect(logs.join()).not.toContain(reason);
    });
  });
});
