import { phaseMsOf } from "../../gateway/limits/limit-rule.ts";
import { createInventoryApi } from "../../rest-client/index.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem, type TestKey } from "../support/system.ts";
import { until } from "../support/until.ts";

const stack = suiteStack();
const bigId = 9223372036854775807n;
let system: System;

beforeAll(async () => {
  system = await startSystem({
    gatewayEnv: { KEY_ROTATION: "1" },
    seed: [
      { petId: -5n, quantity: 3, status: "pending" },
      { petId: 1001n, quantity: 1, status: "available" },
      { petId: bigId, quantity: 2, status: "sold" },
    ],
  });
  stack.defer(() => system.close());
});

const open = (apiKey: string, fetch?: typeof globalThis.fetch) =>
  createInventoryApi({ baseUrl: `http://${system.address}/v1`, apiKey, ...(fetch && { fetch }) });

test("the list and an update are exact over the REST client, and an unchanged list is sent once", async () => {
  const statuses: number[] = [];
  const api = open(system.keys.enterprise, async (...request) => {
    const response = await fetch(...request);
    statuses.push(response.status);
    return response;
  });
  const list = await api.list();
  expect(list).toEqual([
    { petId: -5n, quantity: 3, status: "pending" },
    { petId: 1001n, quantity: 1, status: "available" },
    { petId: bigId, quantity: 2, status: "sold" },
  ]);
  expect(await api.list()).toBe(list);
  const { etag, ...updated } = await api.update(bigId, 7);
  expect(updated).toEqual({ petId: bigId, quantity: 7, status: "sold" });
  expect((await api.list()).at(-1)).toEqual(updated);
  expect(statuses).toEqual([200, 304, 200, 200]);
  await api.update(bigId, 8, { ifMatch: etag });
  await expect(api.update(bigId, 9, { ifMatch: etag })).rejects.toMatchObject({
    code: "precondition_failed",
    status: 412,
    requestId: expect.any(String),
  });
  await expect(api.update(77, 1)).rejects.toMatchObject({ code: "not_found", status: 404 });
  await expect(open("ps_test_wrong").list()).rejects.toMatchObject({ code: "invalid_api_key", status: 401 });
});

test("the REST client reads entries by their petIds, and the stock in pages", async () => {
  const api = open(system.keys.enterprise);
  const all = await api.list();
  const some = await api.list({ petIds: [bigId, 77, -5] });
  const { etag } = some; // the same revision's tag as that of `all`, which came as gzip
  expect(all.etag).toBe(etag.replace(/"$/, '-gzip"'));
  expect([...some]).toEqual([all[0], all[2]]);
  const pages = await Array.fromAsync(api.pages({ limit: 2 }));
  expect(pages.map(({ etag, length }) => [etag, length])).toEqual([
    [all.etag, 2],
    [all.etag, 1],
  ]);
  expect(pages.flat()).toEqual([...all]);
});

test("an update that depends on an ETag is refused behind a proxy that removes ETags", async () => {
  const api = open(system.keys.enterprise, async (...request) => {
    const response = await fetch(...request);
    return new Response(await response.text(), { status: response.status });
  });
  const { etag, quantity } = await api.get(1001);
  expect(await api.get(1001)).toMatchObject({ etag, quantity });
  await expect(api.update(1001, quantity + 1, { ifMatch: etag })).rejects.toThrow("ifMatch is empty");
  await expect(api.updateMany([{ petId: 1001, quantity: quantity + 1, ifMatch: etag }])).rejects.toThrow(TypeError);
  expect(await system.stored(1001n)).toMatchObject({ quantity });
});

test("the REST client reads an entry, changes, many updates, the limits and the use exactly", async () => {
  const statuses: number[] = [];
  const api = open(system.keys.pro, async (...request) => {
    const response = await fetch(...request);
    statuses.push(response.status);
    return response;
  });
  const { etag: since } = await api.list();
  const entry = await api.get(bigId);
  expect(entry).toMatchObject({ petId: bigId, status: "sold" });
  expect(await api.get(bigId)).toBe(entry);
  const [first, second] = await api.updateMany([
    { petId: bigId, quantity: 21, ifMatch: entry.etag },
    { petId: 77, quantity: 1 },
  ]);
  expect(first).toEqual({ petId: bigId, quantity: 21, status: "sold", etag: expect.stringMatching(/^"r\d+"$/) });
  expect(second).toMatchObject({ petId: 77n, error: { code: "not_found", status: 404 } });
  expect(await api.get(bigId)).toEqual(first);
  expect(await api.changes(since)).toEqual({ etag: expect.any(String), changed: [first], removed: [] });
  await expect(api.changes(since.replace(/^"\w+/, '"00000000'))).rejects.toMatchObject({
    code: "changes_unavailable",
    status: 410,
  });
  expect(statuses).toEqual([200, 200, 304, 200, 304, 200, 410]);

  const { plan, windows, ban } = await api.rateLimit();
  expect([plan, ban]).toEqual(["pro", null]);
  expect(windows.map(({ name, used }) => [name, used])).toEqual([
    ["minute", 7],
    ["day", 7],
  ]);
  const { steps } = await api.usage({ hours: 1 });
  expect(steps.reduce((sum, { served }) => sum + served, 0)).toBe(7);
});

test("an update of the REST client with a lost answer is repeated with its key, and happens once", async () => {
  let cuts = 0;
  const api = open(system.keys.business, async (...request) => {
    const response = await fetch(...request);
    if (cuts === 0) return response;
    cuts -= 1;
    await response.body?.cancel();
    throw new TypeError("the answer was lost");
  });
  const before = await api.update(1001, 30);
  cuts = 1;
  const updated = await api.update(1001, 31, { ifMatch: before.etag });
  expect(updated).toMatchObject({ petId: 1001n, quantity: 31, replayed: true });
  cuts = 1;
  const [first, second] = await api.updateMany([
    { petId: 1001, quantity: 32, ifMatch: updated.etag },
    { petId: -5n, quantity: 33 },
  ]);
  expect([first, second]).toMatchObject([
    { petId: 1001n, quantity: 32, replayed: true },
    { petId: -5n, quantity: 33, replayed: true },
  ]);
  await api.update(1001, 34, { idempotencyKey: "order-7" });
  await expect(api.update(1001, 35, { idempotencyKey: "order-7" })).rejects.toMatchObject({
    code: "idempotency_key_reused",
    status: 422,
  });
  expect(await api.get(1001)).toMatchObject({ quantity: 34 });
});

test("many updates with long lists of tags are made once, though the call is repeated", async () => {
  const statuses: number[] = [];
  const api = open(system.keys.business, async (...request) => {
    const response = await fetch(...request);
    statuses.push(response.status);
    return response;
  });
  const { etag } = await api.get(bigId);
  const others = Array.from({ length: 19 }, (_, i) => `"r${10n ** 18n + BigInt(i)}"`);
  const update = { petId: bigId, quantity: 40, ifMatch: [etag, ...others].join(", ") };
  const entries = [update, ...Array.from({ length: 120 }, (_, i) => ({ ...update, petId: 2_000 + i }))];
  const idempotencyKey = `"${"k".repeat(60)}"`;
  const [first, ...rest] = await api.updateMany(entries, { idempotencyKey });
  expect(first).toMatchObject({ petId: bigId, quantity: 40 });
  expect(rest).toHaveLength(120);
  for (const result of rest) expect(result).toMatchObject({ error: { code: "not_found", status: 404 } });
  await api.update(bigId, 41);
  const [repeated] = await api.updateMany(entries, { idempotencyKey });
  expect(repeated).toEqual({ ...first, replayed: true });
  expect(await system.stored(bigId)).toMatchObject({ quantity: 41 });
  expect(new Set(statuses)).toEqual(new Set([200]));
});

test("a day's limit of keyed updates that is spent stops no read of the REST client", async () => {
  const { listen } = await system.startGateway({ KEYED_UPDATES_PER_DAY: "1" });
  const api = createInventoryApi({ baseUrl: `http://${listen}/v1`, apiKey: system.keys.enterprise });
  await api.update(1001, 50);
  await expect(api.update(1001, 51)).rejects.toMatchObject({ code: "rate_limit_exceeded", status: 429 });
  expect(await api.list()).toContainEqual(expect.objectContaining({ petId: 1001n, quantity: 50 }));
});

test("the REST client learns from rateLimit() of a lifted ban and of a raised limit of a day", async () => {
  const { key, keyId, account } = await system.issueKey({
    plan: "enterprise",
    limits: { perMinute: 1_000, perDay: 1 },
  });
  const [spent, banned] = [open(key), open(key)];
  await spent.list();
  await expect(spent.list()).rejects.toMatchObject({ code: "rate_limit_exceeded" });
  const headers = { Authorization: `Bearer ${key}` };
  await until(async () =>
    (await (await fetch(`http://${system.address}/v1/inventory`, { headers })).text()).includes("api_key_banned"),
  );
  await expect(banned.list()).rejects.toMatchObject({ code: "api_key_banned" });

  await system.runKeys("unban", keyId);
  const raised = ["--plan", "enterprise", "--per-minute", "1000", "--per-day", "2000"];
  await system.runKeys("plan", "--account", account, ...raised);
  for (const api of [spent, banned]) {
    await until(
      async () => {
        const { ban, windows } = await api.rateLimit();
        return ban === null && windows.every(({ remaining }) => remaining > 0);
      },
      { withinMs: 45_000, everyMs: 1_000 },
    );
    expect(await api.list()).toHaveLength(3);
  }
});

test("fifty loops that want far more than the limit get all of it, hardly a 429 and no ban", async () => {
  const { key, keyId } = await lateKey();
  const statuses: number[] = [];
  const enough = new AbortController();
  const api = open(key, async (...request) => {
    const response = await fetch(...request);
    statuses.push(response.status);
    if (statuses.length === 100) enough.abort(); // the limit of the first minute, and most of the second one
    return response;
  });
  const loop = async () => {
    while (!enough.signal.aborted) await api.list({ signal: enough.signal });
  };
  await Promise.allSettled(Array.from({ length: 50 }, loop));
  expect(statuses.filter((status) => status >= 400).length).toBeLessThanOrEqual(1);
  const { stdout } = await system.runKeys("bans");
  expect(stdout).not.toContain(keyId);
}, 180_000);

/** A key of an account whose minute ends in 10 to 20 s: the loops wait for the next one. */
async function lateKey(): Promise<TestKey> {
  for (let i = 0; ; i++) {
    const limits = { perMinute: 60, perDay: 100_000 };
    const issued = await system.issueKey({ account: `loops ${i}`, plan: "enterprise", limits });
    const sinceMinuteMs = (Date.now() + phaseMsOf(issued.accountId)) % 60_000;
    if (sinceMinuteMs >= 40_000 && sinceMinuteMs < 50_000) return issued;
  }
}

test("four programs sell the last pets, none twice, and the history says which sold the last one", async () => {
  await open(system.keys.enterprise).update(1001, 6, { reason: "stocktaking" });
  const keys = await Promise.all([0, 1, 2, 3].map(() => system.issueKey({ account: "a shop" })));
  const sell = async (key: string, program: number) => {
    const api = open(key);
    for (let sold = 0; ; sold++) {
      const reason = `program ${program}, sale ${sold}`;
      const done = await api.adjustMany([{ petId: 1001, delta: -1, reason }]).catch((error) => error);
      if (!(done instanceof Error)) continue;
      expect(done).toMatchObject({ code: "insufficient_stock", status: 409 });
      return sold;
    }
  };
  const sales = await Promise.all(keys.map(({ key }, program) => sell(key, program)));
  expect(sales.reduce((sum, count) => sum + count)).toBe(6);

  const api = open(keys[0]!.key);
  const { changes, next } = await api.history(1001, { limit: 6 });
  expect(changes.map(({ quantityAfter }) => quantityAfter)).toEqual([0, 1, 2, 3, 4, 5]);
  const [last] = changes;
  const program = Number(/^program (\d)/.exec(last!.reason!)![1]);
  expect(last).toMatchObject({ kind: "adjust", by: "you", keyId: keys[program]!.keyId });
  const [stocktaking] = (await api.history(1001, { before: next })).changes;
  expect(stocktaking).toMatchObject({ kind: "set", by: "other", quantityAfter: 6, reason: null });
  expect(stocktaking).not.toHaveProperty("keyId");
});

test("an adjustment over the REST client gets the first result again with its key, exactly", async () => {
  const api = open(system.keys.enterprise);
  await api.update(bigId, 5);
  const options = { idempotencyKey: "rest-client-adjusts" };
  const first = await api.adjust(bigId, -2, options);
  expect(first).toMatchObject({ petId: bigId, quantity: 3 });
  expect(await api.adjust(bigId, -2, options)).toEqual({ ...first, replayed: true });
  await expect(api.adjust(bigId, -1, options)).rejects.toMatchObject({ code: "idempotency_key_reused", status: 422 });
});

test("the REST client reads pets and orders of other services, with exact ids", async () => {
  const api = open(system.keys.enterprise);
  expect(await api.pet(bigId)).toMatchObject({ id: bigId });
  expect(await api.pet(1001)).toMatchObject({ id: 1001n });
  await expect(api.pet(4)).rejects.toMatchObject({ code: "not_found", status: 404 });
  const orders = await api.orders();
  expect(orders.map(({ petId }) => petId)).toContain(bigId);
  expect(orders.every(({ id, petId }) => typeof id === "bigint" && typeof petId === "bigint")).toBe(true);
});

test("the REST client rotates its key and goes on with it, until the new key has been used", async () => {
  const { key: old } = await system.issueKey({ scopes: ["inventory:read", "keys:rotate"] });
  const api = open(old);
  const { key, scopes, previousKeyEndsAt } = await api.rotateKey({ graceSeconds: 3_600 });
  expect(scopes.toSorted()).toEqual(["inventory:read", "keys:rotate"]);
  expect(Date.parse(previousKeyEndsAt)).toBeLessThan(Date.now() + 3_700_000);
  expect(await api.rotateKey()).not.toMatchObject({ key });
  const latest = open((await api.rotateKey()).key);
  expect(await latest.list()).toHaveLength(3);
  await expect(api.rotateKey()).rejects.toMatchObject({ code: "key_replaced", status: 409 });
  await expect(open(system.keys.pro).rotateKey()).rejects.toMatchObject({ code: "insufficient_scope", status: 403 });
});
