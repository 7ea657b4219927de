import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createInventoryApi, type FollowEvent, InventoryApiError } from "./index.ts";

const bigId = 9223372036854775807n;

interface Received {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

type Handler = (request: Received, response: ServerResponse) => void;

let received: Received[];
let handlers: Handler[];
let baseUrl: string;

/** Answers each request by the next handler; the last one answers all that follow. */
const server = createServer(async (request, response) => {
  const body = (await request.toArray()).join("");
  const { method = "", url = "", headers } = request;
  const seen = { method, url, headers, body };
  received.push(seen);
  const handler = handlers.length > 1 ? handlers.shift() : handlers[0];
  handler!(seen, response);
});

beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
});

beforeEach(() => {
  received = [];
  handlers = [];
});

afterAll(async () => {
  server.close();
  server.closeAllConnections();
  await once(server, "close");
});

const open = () => createInventoryApi({ baseUrl, apiKey: "ps_test_key" });

/** A handler that answers with this. */
const answer =
  (status: number, body: string, headers: Record<string, string> = {}): Handler =>
  (_request, response) =>
    void response.writeHead(status, headers).end(body);

const refusal = (status: number, code: string, headers: Record<string, string> = {}) =>
  answer(status, JSON.stringify({ code, message: "no", status }), { "X-Request-Id": "request-1", ...headers });

const entryText = `{"petId":${bigId},"quantity":12,"status":"available"}`;
const entry = { petId: bigId, quantity: 12, status: "available" };
const cut: Handler = (_request, response) => void response.destroy();

test("the list has exact ids and its tag, and one that has not changed is not sent again", async () => {
  handlers = [answer(200, `[${entryText}]`, { ETag: '"e-1"' }), answer(304, "")];
  const api = open();
  const list = await api.list();
  expect([list, list.etag]).toEqual([[entry], '"e-1"']);
  expect(await api.list()).toBe(list);
  expect(received.map(({ url, headers }) => [url, headers["if-none-match"], headers.authorization])).toEqual([
    ["/v1/inventory", undefined, "Bearer ps_test_key"],
    ["/v1/inventory", '"e-1"', "Bearer ps_test_key"],
  ]);
});

test("entries by their petIds come in one answer with the tag of the list", async () => {
  handlers = [answer(200, `[${entryText}]`, { ETag: '"e-1"' })];
  const list = await open().list({ petIds: [7, bigId, -1n] });
  expect([list, list.etag]).toEqual([[entry], '"e-1"']);
  expect(received.map(({ url }) => url)).toEqual([`/v1/inventory?petIds=7,${bigId},-1`]);
});

test("the pages of the stock begin after each other, and end with the first one that is not full", async () => {
  const page = (...ids: (bigint | number)[]) =>
    answer(200, `[${ids.map((id) => entryText.replace(/\d+/, String(id)))}]`, { ETag: `"e-${ids.length}"` });
  handlers = [page(1, bigId - 1n), page(bigId)];
  const api = open();
  const pages = await Array.fromAsync(api.pages({ limit: 2 }));
  expect(pages.map((items) => [items.etag, ...items.map(({ petId }) => petId)])).toEqual([
    ['"e-2"', 1n, bigId - 1n],
    ['"e-1"', bigId],
  ]);
  handlers = [page()];
  expect(await Array.fromAsync(api.pages())).toEqual([[]]);
  expect(received.map(({ url }) => url)).toEqual([
    "/v1/inventory?limit=2",
    `/v1/inventory?limit=2&after=${bigId - 1n}`,
    "/v1/inventory?limit=1000",
  ]);
});

test("an entry has its tag, and is not sent again unless it changed since its read or update", async () => {
  handlers = [
    answer(200, entryText, { ETag: '"r1"' }),
    answer(304, ""),
    answer(200, entryText, { ETag: '"r2"' }),
    answer(304, ""),
  ];
  const api = open();
  expect(await api.get(bigId)).toEqual({ ...entry, etag: '"r1"' });
  expect(await api.get(bigId)).toEqual({ ...entry, etag: '"r1"' });
  expect(await api.update(bigId, 12)).toEqual({ ...entry, etag: '"r2"' });
  expect(await api.get(bigId)).toEqual({ ...entry, etag: '"r2"' });
  expect(received.map(({ headers }) => headers["if-none-match"])).toEqual([undefined, '"r1"', undefined, '"r2"']);
  expect(new Set(received.map(({ url }) => url))).toEqual(new Set([`/v1/inventory/${bigId}`]));
});

test("the tags of the last thousand entries are remembered", async () => {
  handlers = [
    ({ url }, response) =>
      void response.setHeader("ETag", '"r1"').end(entryText.replace(/\d+/, url.split("/").at(-1)!)),
  ];
  const api = open();
  for (let id = 0; id < 1_001; id++) await api.get(id);
  received = [];
  for (const id of [1, 0]) await api.get(id);
  expect(received.map(({ headers }) => headers["if-none-match"])).toEqual(['"r1"', undefined]);
});

test("an update that got no answer, or a 503, is repeated with the same Idempotency-Key", async () => {
  handlers = [
    cut,
    refusal(503, "service_unavailable", { "Retry-After": "0" }),
    answer(200, entryText, { ETag: '"r1"', "Idempotency-Replayed": "true" }),
  ];
  expect(await open().update(bigId, 12, { ifMatch: '"r0"' })).toEqual({ ...entry, etag: '"r1"', replayed: true });
  expect(received).toHaveLength(3);
  expect(received[0]).toMatchObject({
    method: "PATCH",
    body: '{"quantity":12}',
    headers: {
      "content-type": "application/json",
      "if-match": '"r0"',
      "idempotency-key": expect.stringMatching(/^[\w.:-]{1,64}$/),
    },
  });
  const sent = received.map(({ body, headers }) => [body, headers["idempotency-key"], headers["if-match"]]);
  expect(sent).toEqual([sent[0], sent[0], sent[0]]);
});

test("an entry that an update was replayed for is read without that mark", async () => {
  const done = `${entryText.slice(0, -1)},"etag":"\\"r1\\"","replayed":true}`;
  handlers = [
    answer(200, entryText, { ETag: '"r1"', "Idempotency-Replayed": "true" }),
    answer(304, ""),
    answer(200, `[${done}]`),
    answer(304, ""),
  ];
  const api = open();
  const read = { ...entry, etag: '"r1"' };
  expect(await api.update(bigId, 12)).toEqual({ ...read, replayed: true });
  expect(await api.get(bigId)).toEqual(read);
  expect(await api.updateMany([{ petId: bigId, quantity: 12 }])).toEqual([{ ...read, replayed: true }]);
  expect(await api.get(bigId)).toEqual(read);
});

test("an empty ifMatch, as behind a proxy that removes ETags, is a TypeError and sends nothing", async () => {
  handlers = [answer(200, entryText)];
  const api = open();
  const { etag } = await api.get(bigId);
  expect(await api.get(bigId)).toEqual({ ...entry, etag });
  const hundred = Array.from({ length: 100 }, (_, petId) => ({ petId, quantity: 1 }));
  for (const ifMatch of [etag, " ", null as unknown as string]) {
    const calls = [
      api.update(bigId, 5, { ifMatch }),
      api.updateMany([{ petId: bigId, quantity: 5, ifMatch }]),
      api.updateMany([...hundred, { petId: bigId, quantity: 5, ifMatch }]),
    ];
    const outcomes = await Promise.allSettled(calls);
    const refused = { reason: new TypeError("ifMatch is empty: pass an ETag, or leave ifMatch out") };
    expect(outcomes).toMatchObject([refused, refused, refused]);
  }
  expect(received.map(({ headers }) => headers["if-none-match"])).toEqual([undefined, undefined]);
});

test("each update has an Idempotency-Key of its own, or the caller's", async () => {
  handlers = [answer(200, entryText, { ETag: '"r1"' })];
  const api = open();
  await api.update(bigId, 12);
  await api.update(bigId, 12);
  await api.update(bigId, 12, { idempotencyKey: "order-7" });
  const [first, second, third] = received.map(({ headers }) => headers["idempotency-key"]);
  expect(first).not.toBe(second);
  expect(third).toBe("order-7");
});

test("many updates go by the hundred, and their results are in order", async () => {
  handlers = [
    ({ body }, response) => {
      const ids = [...body.matchAll(/"petId":(-?\d+)/g)].map(([, id]) => id);
      const one = (id: string) => `{"petId":${id},"quantity":1,"status":"sold","etag":"\\"r${id}\\""}`;
      const none = (id: string) => `{"petId":${id},"error":{"code":"not_found","message":"none","status":404}}`;
      response.end(`[${ids.map((id) => (id === "7" ? none(id) : one(id!)))}]`);
    },
  ];
  const ids = [bigId, -5n, 7n, ...Array.from({ length: 100 }, (_, i) => 1_000n + BigInt(i))];
  const updates = ids.map((petId) => ({ petId, quantity: 1, ...(petId === bigId && { ifMatch: '"r1", "r2"' }) }));
  const results = await open().updateMany(updates, { idempotencyKey: "night" });
  expect(results.map(({ petId }) => petId)).toEqual(ids);
  expect(results[0]).toEqual({ petId: bigId, quantity: 1, status: "sold", etag: `"r${bigId}"` });
  expect(results[2]).toEqual({ petId: 7n, error: { code: "not_found", message: "none", status: 404 } });
  expect(received.map(({ method, url, headers }) => [method, url, headers["idempotency-key"]])).toEqual([
    ["POST", "/v1/inventory/updates", "night"],
    ["POST", "/v1/inventory/updates", "night.100"],
  ]);
  expect(received[0]!.body).toMatch(
    /^\[\{"petId":9223372036854775807,"quantity":1,"ifMatch":"\\"r1\\", \\"r2\\""\},\{"petId":-5,/,
  );
  expect(received[1]!.body).toBe(
    '[{"petId":1097,"quantity":1},{"petId":1098,"quantity":1},{"petId":1099,"quantity":1}]',
  );
});

test("a failure after the first hundred updates is the result of those that were not made", async () => {
  const done = Array.from({ length: 100 }, (_, i) => `{"petId":${i},"quantity":1,"status":"sold","etag":"\\"r1\\""}`);
  handlers = [answer(200, `[${done}]`), refusal(403, "insufficient_scope")];
  const results = await open().updateMany(Array.from({ length: 102 }, (_, petId) => ({ petId, quantity: 1 })));
  expect(results[99]).toMatchObject({ petId: 99n, quantity: 1 });
  expect(results.slice(100)).toMatchObject(
    [100n, 101n].map((petId) => ({ petId, error: { code: "insufficient_scope", status: 403 } })),
  );
  handlers = [refusal(403, "insufficient_scope")];
  await expect(open().updateMany([{ petId: 1, quantity: 1 }])).rejects.toMatchObject({ code: "insufficient_scope" });
  expect(await open().updateMany([])).toEqual([]);
});

test("an error has code, status, request id and time to wait, and is final when it cannot pass", async () => {
  handlers = [refusal(412, "precondition_failed")];
  const error = await open()
    .update(1, 2)
    .catch((thrown) => thrown);
  expect(error).toBeInstanceOf(InventoryApiError);
  expect(error).toMatchObject({
    code: "precondition_failed",
    status: 412,
    requestId: "request-1",
    retryAfterMs: undefined,
  });
  expect(received).toHaveLength(1);
  handlers = [refusal(429, "rate_limit_exceeded", { "Retry-After": "3600" })];
  await expect(open().get(1)).rejects.toMatchObject({
    code: "rate_limit_exceeded",
    status: 429,
    retryAfterMs: 3_600_000,
  });
  handlers = [answer(404, "<html>")];
  await expect(open().get(1)).rejects.toMatchObject({ code: "unknown_answer", status: 404 });
  handlers = [answer(200, "<html>")];
  await expect(open().get(1)).rejects.toMatchObject({ code: "unknown_answer", status: 200 });
});

test.each(["null", "{}", "[null]", "[{}]", '[{"petId":"x"}]', '"text"', "1"])(
  "an answer of 200 with the body %s, which was not asked for, is an error of the client",
  async (body) => {
    handlers = [answer(200, body)];
    const api = open();
    const calls = [
      () => api.list(),
      () => api.get(1),
      () => api.update(1, 2),
      () => api.updateMany([{ petId: 1, quantity: 2 }]),
      () => api.changes('"e-1"'),
    ];
    for (const call of calls) {
      const error = await call().catch((thrown) => thrown);
      expect(error).toBeInstanceOf(InventoryApiError);
      expect(error).toMatchObject({ code: "unknown_answer", status: 200 });
    }
  },
);

test("a null in place of the limits is an error of the client", async () => {
  handlers = [answer(200, "null")];
  await expect(open().rateLimit()).rejects.toMatchObject({ code: "unknown_answer", status: 200 });
});

test("a 304 that was not asked for is an error of the client", async () => {
  handlers = [answer(304, "")];
  const api = open();
  for (const call of [() => api.list(), () => api.get(1), () => api.update(1, 2), () => api.changes('"e-1"')])
    await expect(call()).rejects.toMatchObject({ code: "unknown_answer", status: 304 });
});

test("a banned key sends nothing before the ban ends, but may still ask for its limits", async () => {
  handlers = [refusal(429, "api_key_banned", { "Retry-After": "300" }), answer(200, '{"plan":"free"}')];
  const api = open();
  const [first, second] = await Promise.allSettled([api.list(), api.get(1)]);
  expect([first, second]).toMatchObject([1, 2].map(() => ({ reason: { code: "api_key_banned", status: 429 } })));
  const error = await api.update(1, 2).catch((thrown) => thrown);
  expect(error).toMatchObject({ code: "api_key_banned", status: 429 });
  expect(Math.round(error.retryAfterMs / 1_000)).toBe(300);
  expect(received).toHaveLength(1);
  expect(await api.rateLimit()).toEqual({ plan: "free" });
  expect(await api.usage({ hours: 48 })).toEqual({ plan: "free" });
  expect(received.slice(1).map(({ url }) => url)).toEqual(["/v1/rate_limit", "/v1/usage?hours=48"]);
});

test("a call is sent again once rateLimit() says that the key is not banned", async () => {
  const until = new Date().toISOString();
  handlers = [
    refusal(429, "api_key_banned", { "Retry-After": "300" }),
    answer(200, JSON.stringify({ plan: "free", ban: { until } })),
    answer(200, '{"plan":"free","ban":null}'),
    answer(200, "[]"),
  ];
  const api = open();
  for (const ban of [{ until }, null]) {
    await expect(api.list()).rejects.toMatchObject({ code: "api_key_banned" });
    expect(await api.rateLimit()).toMatchObject({ ban });
  }
  expect(await api.list()).toEqual([]);
  expect(received).toHaveLength(4);
});

test("no more requests leave than the limit has left, however many calls wait", async () => {
  let left = 10;
  handlers = [
    (_request, response) => {
      left -= 1;
      response
        .setHeader("RateLimit-Policy", '"minute";q=10;w=60')
        .setHeader("RateLimit", `"minute";r=${Math.max(0, left)};t=60`);
      setTimeout(() => answer(200, "[]", { ETag: '"e"' })(_request, response), 20);
    },
  ];
  const stop = new AbortController();
  const api = open();
  const calls = Array.from({ length: 50 }, () => api.list({ signal: stop.signal }));
  await Promise.all(calls.slice(0, 8));
  expect(received).toHaveLength(8); // the last two are spread over the rest of the minute
  stop.abort(new Error("enough"));
  const ended = await Promise.allSettled(calls);
  expect(ended.filter(({ status }) => status === "rejected")).toHaveLength(42);
  expect(ended.at(-1)).toMatchObject({ reason: { message: "enough" } });
});

test("a signal ends a call while its answer is awaited, and one aborted before sends nothing", async () => {
  const stop = new AbortController();
  handlers = [() => stop.abort(new Error("enough"))];
  await expect(open().list({ signal: stop.signal })).rejects.toThrow("enough");
  await expect(open().list({ signal: stop.signal })).rejects.toThrow("enough");
  expect(received).toHaveLength(1);
});

test("an invalid address, key, id or header is a TypeError at once", async () => {
  expect(() => createInventoryApi({ baseUrl: "not an address", apiKey: "key" })).toThrow("Failed to parse URL");
  expect(() => createInventoryApi({ baseUrl, apiKey: "two\nlines" })).toThrow("invalid header value");
  for (const apiKey of [undefined as unknown as string, ""])
    expect(() => createInventoryApi({ baseUrl, apiKey })).toThrow("apiKey is missing");
  await expect(open().get(2 ** 60)).rejects.toThrow("petId: 1152921504606847000 is not exact; pass a bigint");
  const text = "1001" as unknown as bigint;
  await expect(open().get(text)).rejects.toThrow('petId must be a bigint, such as 1001n, or a number: "1001"');
  await expect(open().update(1, 2, { ifMatch: "two\nlines" })).rejects.toThrow("invalid header value");
});

describe("follow()", () => {
  /** A stock whose differences are asked for by their number. */
  const differences = [
    { etag: '"e-1"', changed: `[{"petId":${bigId},"quantity":1,"status":"sold","etag":"\\"r1\\""}]`, removed: "[]" },
    { etag: '"e-2"', changed: "[]", removed: `[${bigId},-1]` },
  ].map(({ etag, changed, removed }) => `{"etag":${JSON.stringify(etag)},"changed":${changed},"removed":${removed}}`);
  const empty = (etag: string) => `{"etag":${JSON.stringify(etag)},"changed":[],"removed":[]}`;
  const stock = answer(200, `[${entryText}]`, { ETag: '"e-0"' });

  test("gives the stock, then each difference once, though answers are lost or refused", async () => {
    handlers = [
      cut,
      stock,
      cut,
      answer(200, differences[0]!),
      refusal(504, "timeout"),
      answer(200, empty('"e-1"')),
      answer(200, differences[1]!),
    ];
    const events: FollowEvent[] = [];
    for await (const event of open().follow()) {
      events.push(event);
      if (events.length === 3) break;
    }
    expect(events).toEqual([
      { type: "stock", etag: '"e-0"', items: [entry] },
      {
        type: "changes",
        etag: '"e-1"',
        changed: [{ petId: bigId, quantity: 1, status: "sold", etag: '"r1"' }],
        removed: [],
      },
      { type: "changes", etag: '"e-2"', changed: [], removed: [bigId, -1n] },
    ]);
    const asked = received
      .slice(2)
      .map(({ url, headers }) => [new URL(url, baseUrl).searchParams.get("since"), headers.prefer]);
    expect(asked).toEqual(['"e-0"', '"e-0"', '"e-1"', '"e-1"', '"e-1"'].map((since) => [since, "wait=90"]));
  });

  test("gives the stock again when the differences are no longer known", async () => {
    handlers = [stock, refusal(410, "changes_unavailable"), answer(200, "[]", { ETag: '"f-0"' })];
    const events = open().follow();
    expect((await events.next()).value).toMatchObject({ type: "stock", etag: '"e-0"' });
    expect((await events.next()).value).toEqual({ type: "stock", etag: '"f-0"', items: [] });
    await events.return(undefined as never);
  });

  test("ends with the error that does not pass, such as a ban", async () => {
    handlers = [stock, refusal(429, "api_key_banned", { "Retry-After": "300" })];
    const events = open().follow();
    await events.next();
    await expect(events.next()).rejects.toMatchObject({ code: "api_key_banned" });
  });

  test("ends at its signal while it waits for a change", async () => {
    const stop = new AbortController();
    handlers = [stock, () => stop.abort(new Error("enough"))];
    const events = open().follow({ signal: stop.signal });
    await events.next();
    await expect(events.next()).rejects.toThrow("enough");
  });
});
