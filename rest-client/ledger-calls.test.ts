import { createInventoryApi, InventoryApiError } from "./index.ts";

const bigId = 9_007_199_254_740_993n;
const change = {
  etag: '"r2"',
  at: "2026-11-24T21:00:00.000Z",
  kind: "adjust",
  quantityBefore: 5,
  quantityAfter: 4,
  statusBefore: "sold",
  statusAfter: "sold",
  by: "you",
  keyId: "key_1",
  requestId: "a",
  reason: "order 17",
};

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly key: string | null;
  readonly ifMatch: string | null;
  readonly body: string;
}

/** An API that gives these answers, one after the other, and the requests that it got. */
function open(...answers: (() => Response)[]) {
  const sent: Sent[] = [];
  const fetch = async (address: unknown, { method = "GET", headers, body = "" }: RequestInit = {}) => {
    const { pathname, search } = new URL(String(address));
    const given = new Headers(headers);
    const ifMatch = given.get("if-match");
    sent.push({ method, path: pathname + search, key: given.get("idempotency-key"), ifMatch, body: String(body) });
    return (answers.length > 1 ? answers.shift()! : answers[0]!)();
  };
  return { sent, api: createInventoryApi({ baseUrl: "http://localhost/v1", apiKey: "key", fetch }) };
}

const json = (text: string, headers: Record<string, string> = {}, status = 200) =>
  new Response(text, { status, headers: { "Content-Type": "application/json", ...headers } });
const entry = (id: bigint | number, quantity: number) =>
  `{"petId":${id},"quantity":${quantity},"status":"sold","etag":"\\"r${quantity}\\""}`;
const adjusted = (...entries: string[]) => json(`[${entries}]`);

test("adjust() sends every digit of the petId, the precondition and the reason", async () => {
  const { api, sent } = open(() => adjusted(entry(bigId, 4)));
  const options = { ifMatch: '"r1"', reason: "order 17", idempotencyKey: "order-17" };
  expect(await api.adjust(bigId, -1, options)).toEqual({ petId: bigId, quantity: 4, status: "sold", etag: '"r4"' });
  expect(sent).toEqual([
    {
      method: "POST",
      path: "/v1/inventory/adjustments",
      key: "order-17",
      ifMatch: null,
      body: `[{"petId":${bigId},"delta":-1,"ifMatch":"\\"r1\\"","reason":"order 17"}]`,
    },
  ]);
});

test("adjustMany() sends all in one request, and gives the entries in their order", async () => {
  const { api, sent } = open(() => adjusted(entry(3, 1), entry(bigId, 2)));
  const entries = await api.adjustMany([
    { petId: 3, delta: 7 },
    { petId: bigId, delta: -7, reason: "b" },
  ]);
  expect(entries).toMatchObject([
    { petId: 3n, quantity: 1 },
    { petId: bigId, quantity: 2 },
  ]);
  expect(sent.map(({ body }) => body)).toEqual([`[{"petId":3,"delta":7},{"petId":${bigId},"delta":-7,"reason":"b"}]`]);
  expect(sent[0]!.key).toMatch(/^[\w.:-]{20,64}$/);
});

test("an adjustment without an answer, or with a 503, is repeated with its key, and marked so", async () => {
  const { api, sent } = open(
    () => {
      throw new TypeError("fetch failed");
    },
    () => json('{"code":"service_unavailable","message":"x","status":503}', { "Retry-After": "0" }, 503),
    () => json(`[${entry(1, 4)},${entry(2, 5)}]`, { "Idempotency-Replayed": "true" }),
  );
  const adjustments = [1, 2].map((petId) => ({ petId, delta: 1 }));
  expect(await api.adjustMany(adjustments)).toMatchObject([{ replayed: true }, { quantity: 5, replayed: true }]);
  expect(sent).toHaveLength(3);
  expect(new Set(sent.map(({ key, body }) => key + body)).size).toBe(1);
});

test("each adjustment has a key of its own unless the caller names one", async () => {
  const { api, sent } = open(() => adjusted(entry(1, 4)));
  await api.adjust(1, 1);
  await api.adjust(1, 1);
  expect(sent[0]!.key).not.toBe(sent[1]!.key);
});

test.each([
  [404, "not_found"],
  [409, "insufficient_stock"],
  [409, "quantity_overflow"],
  [412, "precondition_failed"],
  [422, "idempotency_key_reused"],
])("a %i %s of an adjustment is final, with its message", async (status, code) => {
  const { api, sent } = open(() => json(JSON.stringify({ code, message: "petId 1", status }), {}, status));
  const error = await api.adjust(1, -1).catch((thrown) => thrown);
  expect(error).toBeInstanceOf(InventoryApiError);
  expect(error).toMatchObject({ code, status, message: expect.stringContaining("petId 1") });
  expect(sent).toHaveLength(1);
});

test("an entry is remembered with the tag of an adjustment, without the mark of a replay", async () => {
  const replay = { "Idempotency-Replayed": "true" };
  const { api } = open(
    () => json(`[${entry(1, 4)}]`, replay),
    () => new Response(null, { status: 304 }),
  );
  await api.adjust(1, 1);
  expect(await api.get(1)).toEqual({ petId: 1n, quantity: 4, status: "sold", etag: '"r4"' });
});

test("history() gives the changes, and next leads to the page after it", async () => {
  const { api, sent } = open(
    () => json(JSON.stringify({ changes: [change], next: '"r2"' })),
    () => json(JSON.stringify({ changes: [], next: null })),
  );
  const { changes, next } = await api.history(bigId, { limit: 1 });
  expect(changes).toEqual([change]);
  expect(await api.history(bigId, { limit: 100, before: next })).toEqual({ changes: [], next: null });
  await api.history(-1, { before: null });
  expect(sent.map(({ method, path }) => `${method} ${path}`)).toEqual([
    `GET /v1/inventory/${bigId}/history?limit=1`,
    `GET /v1/inventory/${bigId}/history?limit=100&before=%22r2%22`,
    "GET /v1/inventory/-1/history",
  ]);
});

test("a reason goes with each way to update, and leaves no member without one", async () => {
  const { api, sent } = open(
    () => json('{"petId":1,"quantity":2,"status":"sold"}', { ETag: '"r2"' }),
    () => adjusted(entry(1, 2), entry(2, 2)),
    () => json('{"petId":1,"quantity":2,"status":"sold"}', { ETag: '"r2"' }),
  );
  await api.update(1, 2, { reason: "🐈".repeat(200) });
  await api.updateMany([
    { petId: 1, quantity: 2, reason: "a" },
    { petId: 2, quantity: 2 },
  ]);
  await api.update(1, 2);
  expect(sent.map(({ body }) => JSON.parse(body))).toEqual([
    { quantity: 2, reason: "🐈".repeat(200) },
    [
      { petId: 1, quantity: 2, reason: "a" },
      { petId: 2, quantity: 2 },
    ],
    { quantity: 2 },
  ]);
});
