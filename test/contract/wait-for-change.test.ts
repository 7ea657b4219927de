import { once } from "node:events";
import { connect } from "node:net";
import { promisify } from "node:util";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { bodyText, expectError, expectOutage, header, readLimits } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { type Response, request } from "../support/http.ts";
import type { RunningProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const stack = suiteStack();
let system: System;
let gateway: RunningProcess;
let authorization: string;

beforeAll(async () => {
  system = await startSystem({
    gateways: 2,
    seed: Array.from({ length: 20 }, (_, i) => ({ petId: BigInt(i + 1), quantity: 1, status: "available" })),
    gatewayEnv: { INVENTORY_TIMEOUT_MS: "1000" },
  });
  stack.defer(() => system.close());
  gateway = system.gateways[0]!;
  authorization = `Bearer ${system.keys.enterprise}`;
});

const call = (path: string, headers: Record<string, string> = {}, { listen: address } = gateway) =>
  callApi(address, { path, headers: { authorization, ...headers } });
const etagOf = async (path: string) => header(await call(path), "ETag");

/** Waits for a change of an entry, or of any entry. */
async function waitFor(
  what: "changes" | bigint,
  prefer = "wait=60",
  headers: Record<string, string> = {},
  at = gateway,
) {
  if (what === "changes") {
    const etag = await etagOf("/v1/inventory");
    return { answer: call(`/v1/inventory/changes?since=${encodeURIComponent(etag)}`, { prefer, ...headers }, at) };
  }
  const path = `/v1/inventory/${what}`;
  return { answer: call(path, { prefer, "if-none-match": await etagOf(path), ...headers }, at) };
}

/** The number of requests that a gateway holds. */
async function held({ admin } = gateway): Promise<number> {
  const { text } = await request(admin, { path: "/metrics" });
  return Number(/^gateway_held_requests (\d+)$/m.exec(text)![1]);
}
const untilHeld = (count: number, at = gateway) => until(async () => (await held(at)) === count);

async function patch(petId: bigint, quantity: number, at = gateway) {
  const { status } = await callApi(at.listen, {
    method: "PATCH",
    path: `/v1/inventory/${petId}`,
    headers: { authorization, "content-type": "application/json" },
    body: JSON.stringify({ quantity }),
  });
  expect(status).toBe(200);
}
const remove = (petId: bigint) => promisify(system.client.removeInventoryItem.bind(system.client))({ petId });

const appliedOf = ({ headers }: Response) => headers["preference-applied"];
const isOver = (answer: Promise<Response>) =>
  Promise.race([answer.then(() => true), new Promise((r) => setImmediate(r, false))]);

test("a request for changes is answered after the next change, through any gateway", async () => {
  for (const writer of system.gateways) {
    const { answer } = await waitFor("changes");
    await untilHeld(1);
    await patch(1n, Math.ceil(Math.random() * 1e9), writer);
    const response = await answer; // its wait would outlast this test
    expect(response.json()).toMatchObject({ changed: [{ petId: 1 }], removed: [] });
    expect(appliedOf(response)).toBe("wait=60");
  }
});

test("a request for an entry is answered after a change of it and of no other entry", async () => {
  const { answer } = await waitFor(2n);
  const { answer: other } = await waitFor(3n, "wait=70");
  await untilHeld(2);
  await patch(4n, 9);
  await patch(3n, 9);
  expect(await other).toMatchObject({ status: 200, text: '{"petId":3,"quantity":9,"status":"available"}' });
  expect(appliedOf(await other)).toBe("wait=70");
  expect(await isOver(answer)).toBe(false);
  expect(await held()).toBe(1);
  await patch(2n, 8);
  const response = await answer;
  expect(response).toMatchObject({ status: 200, text: '{"petId":2,"quantity":8,"status":"available"}' });
  expect(header(response, "ETag")).toBe(await etagOf("/v1/inventory/2"));
});

test("the removal of an entry ends the wait for it with 404", async () => {
  const { answer } = await waitFor(20n);
  await untilHeld(1);
  await remove(20n);
  expectError(await answer, 404, "not_found");
});

test("a wait without a change ends after its time with what the answer would have been at first", async () => {
  const startedMs = performance.now();
  const [{ answer: entry }, { answer: changes }] = await Promise.all([
    waitFor(5n, "wait=1"),
    waitFor("changes", "wait=1"),
  ]);
  expect(await entry).toMatchObject({ status: 304, text: "" });
  expect((await changes).json()).toMatchObject({ changed: [], removed: [] });
  expect(performance.now() - startedMs).toBeGreaterThan(950);
  for (const answer of [entry, changes]) expect(appliedOf(await answer)).toBe("wait=1");
  expect(await held()).toBe(0);
});

test("a HEAD request waits for a change, too", async () => {
  const path = "/v1/inventory/5";
  const headers = { authorization, prefer: "wait=1", "if-none-match": await etagOf(path) };
  expect(await callApi(gateway.listen, { method: "HEAD", path, headers })).toMatchObject({ status: 304, text: "" });
});

test("a request that has something new to get does not wait, and is told that it was granted one", async () => {
  const etag = await etagOf("/v1/inventory");
  const entry = await etagOf("/v1/inventory/6");
  await patch(6n, 66);
  const changes = await call(`/v1/inventory/changes?since=${encodeURIComponent(etag)}`, { prefer: "wait=60" });
  expect(changes.json()).toMatchObject({ changed: [{ petId: 6 }] });
  const read = await call("/v1/inventory/6", { prefer: "wait=60", "if-none-match": entry });
  for (const answer of [changes, read]) expect([answer.status, appliedOf(answer)]).toEqual([200, "wait=60"]);
});

test("an entry without If-None-Match, one that does not exist and the whole list do not wait", async () => {
  const list = await etagOf("/v1/inventory");
  for (const [path, headers, status] of [
    ["/v1/inventory/6", {}, 200],
    ["/v1/inventory/999", { "if-none-match": "*" }, 404],
    ["/v1/inventory", { "if-none-match": list }, 304],
  ] as const) {
    const answer = await call(path, { ...headers, prefer: "wait=60" });
    expect([answer.status, appliedOf(answer)]).toEqual([status, undefined]);
  }
});

test.each([
  "wait",
  "wait=",
  "wait=x",
  "wait=-1",
  "wait=1.5",
  "waiting=5",
  "respond-async",
  "wait=x, wait=60",
  "x;wait=60",
  "",
])("Prefer: %s is ignored", async (prefer) => {
  const answer = await (await waitFor("changes", prefer)).answer;
  expect([answer.status, appliedOf(answer)]).toEqual([200, undefined]);
});

test.each([
  ["wait=0", "wait=0"],
  ["WAIT = 1 ; foo, wait=60", "wait=1"],
  ['respond-async, wait="1"', "wait=1"],
])("Prefer: %s is granted as %s", async (prefer, applied) => {
  expect(appliedOf(await (await waitFor("changes", prefer)).answer)).toBe(applied);
});

test.each(["wait=91", "wait=99999999999999999999"])("Prefer: %s is granted as wait=90", async (prefer) => {
  const { answer } = await waitFor("changes", prefer);
  await untilHeld(1);
  await patch(7n, Math.ceil(Math.random() * 1e9));
  expect(appliedOf(await answer)).toBe("wait=90");
});

test("a wait counts as one request, and its answer has the limits as they are at its end", async () => {
  const { key } = await system.issueKey({ plan: "enterprise", limits: { perMinute: 10, perDay: 100 } });
  const ofKey = { authorization: `Bearer ${key}` };
  const { answer } = await waitFor("changes", "wait=60", ofKey);
  await untilHeld(1);
  for (let i = 0; i < 3; i++) await call("/v1/store/orders", ofKey);
  await patch(8n, Math.ceil(Math.random() * 1e9));
  // The ETag was read with another key.
  expect(readLimits(await answer)).toMatchObject({ limit: 10, remaining: 6 });
  expect((await answer).status).toBe(200);
});

test("a key that is revoked or banned during a wait gets its refusal before the wait ends", async () => {
  const revoked = await system.issueKey({ plan: "enterprise" });
  const { answer } = await waitFor(9n, "wait=60", { authorization: `Bearer ${revoked.key}` });
  const banned = await system.issueKey({ plan: "enterprise", limits: { perMinute: 5, perDay: 100 } });
  const ofBanned = { authorization: `Bearer ${banned.key}` };
  const { answer: other } = await waitFor(9n, "wait=60", ofBanned);
  await untilHeld(2);
  await system.runKeys("revoke", revoked.keyId);
  await until(async () => bodyText(await call("/v1/store/orders", ofBanned)).includes("api_key_banned"));
  expectError(await answer, 401, "invalid_api_key");
  expectError(await other, 429, "api_key_banned");
  readLimits(await answer);
  expect(await held()).toBe(0);
}, 60_000);

test("a key that is revoked ends its wait before the gateway gives up on a frozen service", async () => {
  const { key, keyId } = await system.issueKey({ plan: "enterprise" });
  const patient = await system.startGateway({ INVENTORY_TIMEOUT_MS: "60000" }); // outlasts this test
  const waits = await Promise.all(
    Array.from({ length: 8 }, () => waitFor(9n, "wait=60", { authorization: `Bearer ${key}` }, patient)),
  );
  await untilHeld(8, patient);
  await system.inventory.kill("SIGSTOP");
  stack.defer(() => system.inventory.kill("SIGCONT"));
  await system.runKeys("revoke", keyId);
  for (const { answer } of waits) expectError(await answer, 401, "invalid_api_key");
  await system.inventory.kill("SIGCONT");
}, 60_000);

test("a client that leaves is held no longer", async () => {
  const path = "/v1/inventory/10";
  const etag = await etagOf(path);
  for (const leave of ["end", "destroy"] as const) {
    const [host, port] = gateway.listen.split(":");
    const socket = connect(Number(port), host);
    const head = [`GET ${path} HTTP/1.1`, "Host: g", `Authorization: ${authorization}`, `If-None-Match: ${etag}`];
    socket.write([...head, "Prefer: wait=60", "\r\n"].join("\r\n"));
    await untilHeld(1);
    socket[leave]();
    await untilHeld(0);
    socket.destroy();
  }
});

test("a held request outlasts a short outage of the service, and gets its error only at its end", async () => {
  const { answer: short } = await waitFor("changes", "wait=2");
  const { answer: long } = await waitFor("changes", "wait=60");
  await untilHeld(2);
  await system.inventory.kill("SIGKILL");
  const response = await short;
  expectOutage(response);
  expect(await isOver(long)).toBe(false);
  await system.restartInventory();
  await until(async () => (await call("/v1/inventory")).status === 200);
  await patch(11n, Math.ceil(Math.random() * 1e9));
  expect((await long).json()).toMatchObject({ changed: [{ petId: 11 }] });
}, 30_000);

test.each([
  ["a body", { "transfer-encoding": "chunked" }, "2\r\n{}\r\n0\r\n\r\n"],
  ["an If-None-Match of more than 1,024 characters", { "if-none-match": `"x"${', "y"'.repeat(300)}` }, ""],
])("a request with %s is answered at once, because it would be kept while it is held", async (_what, more, body) => {
  const path = "/v1/inventory/14";
  const etag = await etagOf(path);
  const { hostname, port } = new URL(`http://${gateway.listen}`);
  const socket = connect(Number(port), hostname);
  stack.defer(() => void socket.destroy());
  const headers = Object.entries({ host: "g", authorization, prefer: "wait=60", "if-none-match": etag, ...more }).map(
    ([name, value]) => `${name}: ${name === "if-none-match" && value !== etag ? `${etag}, ${value}` : value}`,
  );
  socket.write([`GET ${path} HTTP/1.1`, ...headers, "", body].join("\r\n"));
  const [answer] = (await once(socket, "data")) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1.1 304 /);
  expect(answer.toString()).not.toMatch(/Preference-Applied/i);
});

test("an account holds half of the places that others leave, and is answered at once beyond that", async () => {
  const small = await system.startGateway({ MAX_HELD_REQUESTS: "4" });
  const hold = (headers: Record<string, string> = {}) => waitFor("changes", "wait=60", headers, small);
  const waits = [await hold(), await hold()];
  await untilHeld(2, small);
  const { answer } = await hold();
  expect((await answer).json()).toMatchObject({ changed: [], removed: [] });
  expect(appliedOf(await answer)).toBeUndefined();
  waits.push(await hold({ authorization: `Bearer ${system.keys.business}` }));
  await untilHeld(3, small);
  await patch(12n, Math.ceil(Math.random() * 1e9));
  for (const wait of waits) expect(appliedOf(await wait.answer)).toBe("wait=60");
  // Their places are free again.
  const more = [await hold(), await hold()];
  await untilHeld(2, small);
  await patch(12n, Math.ceil(Math.random() * 1e9));
  for (const wait of more) expect(appliedOf(await wait.answer)).toBe("wait=60");
});

test("a gateway with no place for held requests answers each of them at once", async () => {
  const none = await system.startGateway({ MAX_HELD_REQUESTS: "0" });
  const { answer } = await waitFor("changes", "wait=60", {}, none);
  expect(appliedOf(await answer)).toBeUndefined();
});

test("a restore of the stock ends a wait for changes with 410", async () => {
  const { answer } = await waitFor("changes");
  await untilHeld(1);
  const db = openDatabase(system.databaseUrls.inventory);
  await new StockStore(db).beginEpoch();
  await db.destroy();
  expectError(await answer, 410, "changes_unavailable");
});

test("a gateway that stops answers all requests that it holds at once, and loses none", async () => {
  // This test ends before the delay does, and before the waits do.
  const stopping = await system.startGateway({ DRAIN_DELAY_SECONDS: "900", DRAIN_SECONDS: "1000" });
  const waits = await Promise.all(Array.from({ length: 300 }, () => waitFor("changes", "wait=90", {}, stopping)));
  await untilHeld(300, stopping);
  await stopping.kill("SIGTERM");
  for (const { answer } of waits) expect(await answer).toMatchObject({ status: 200 });
  await stopping.kill("SIGKILL");
}, 90_000);

test("a held request delays no other connection, and an update after it waits its turn", async () => {
  const path = "/v1/inventory/13";
  const etag = await etagOf(path);
  const [host, port] = gateway.listen.split(":");
  const socket = connect(Number(port), host);
  stack.defer(() => void socket.destroy());
  const body = '{"quantity":5}';
  const first = [`GET ${path} HTTP/1.1`, "Host: g", `Authorization: ${authorization}`, `If-None-Match: ${etag}`];
  const second = [
    `PATCH ${path} HTTP/1.1`,
    "Host: g",
    `Authorization: ${authorization}`,
    "Content-Type: application/json",
  ];
  socket.write([...first, "Prefer: wait=60", "\r\n"].join("\r\n"));
  socket.write([...second, `Content-Length: ${body.length}`, "", body].join("\r\n"));
  await untilHeld(1);
  await patch(13n, 4);
  let text = "";
  while (!text.includes('"quantity":5')) text += String((await once(socket, "data"))[0]);
  expect(text.indexOf('"quantity":4')).toBeGreaterThan(0);
});
