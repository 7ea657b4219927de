import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { expectError, header, readLimits } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { type Response, request } from "../support/http.ts";
import { readResponse } from "../support/raw-http.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const body = '{"quantity":7}';

describe("an overload", () => {
  const stack = suiteStack();
  let system: System;
  let headers: Record<string, string>;

  beforeAll(async () => {
    const silent = createServer((socket) => void stack.defer(() => void socket.destroy())).listen(0, "127.0.0.1");
    await once(silent, "listening");
    stack.defer(() => void silent.close());
    system = await startSystem({
      seed: [{ petId: 1n, quantity: 100, status: "available" }],
      gatewayEnv: {
        LOG_LEVEL: "info",
        OVERLOAD_REQUESTS: "2",
        BODY_TIMEOUT_MS: "60000",
        INVENTORY_TIMEOUT_MS: "30000",
        ORDERS_UPSTREAM_URL: `http://127.0.0.1:${(silent.address() as AddressInfo).port}`,
      },
    });
    stack.defer(() => system.close());
    headers = { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" };
  });

  const get = (path = "/v1/inventory") => callApi(system.address, { path, headers });
  const patch = (quantity: number) =>
    callApi(system.address, { method: "PATCH", path: "/v1/inventory/1", headers, body: `{"quantity":${quantity}}` });
  const metric = async (name: string) => {
    const metrics = await request(system.adminAddress, { path: "/metrics" });
    return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(metrics.text)![1]);
  };

  /** Makes the event loop late, which begins an overload of at least a second. */
  const begin = async () => {
    const { kill } = system.gateways[0]!;
    await kill("SIGSTOP");
    await delay(300);
    await kill("SIGCONT");
    await until(isOverloaded);
  };
  const isOverloaded = () => {
    const log = system.gateways[0]!.output();
    return log.lastIndexOf("overload: the event loop is late") > log.lastIndexOf("the overload has ended");
  };
  afterEach(() => until(() => !isOverloaded()));

  const expectRefusal = (answer: Response) => {
    expectError(answer, 503, "service_unavailable");
    expect(header(answer, "Retry-After")).toBe("1");
    expect(header(answer, "X-Request-Id")).toMatch(/./);
    expect(readLimits(answer).limit).toBe(60); // the limit of the address, because the key is not read
  };

  test("refuses every request while OVERLOAD_REQUESTS wait, and ends when the event loop is idle", async () => {
    await system.inventory.kill("SIGSTOP");
    const waiting = [get(), get()];
    expect(await get("/docs/")).toMatchObject({ status: 200 }); // so both have arrived, and the event loop is not late
    await begin();
    expectRefusal(await get());
    expectRefusal(await patch(5));
    expectRefusal(await get("/docs/"));
    await system.inventory.kill("SIGCONT");
    expect(await system.stored(1n)).toMatchObject({ quantity: 100 });

    await until(async () => (await get()).status === 200); // the event loop was idle for a while
    for (const answer of waiting) expect(await answer).toMatchObject({ status: 200 });
    expect(await patch(8)).toMatchObject({ status: 200 });
    expect(await metric("gateway_overload_refusals_total")).toBeGreaterThanOrEqual(3);
    await until(() => !isOverloaded());
    expect(system.gateways[0]!.output()).toMatch(/overload: the event loop is late.*the overload has ended/s);
  });

  test("leaves out answers that wait for a slow reader, and answers behind them on its connection", async () => {
    const { hostname, port } = new URL(`http://${system.address}`);
    const reader = connect(Number(port), hostname).pause();
    stack.defer(() => void reader.destroy());
    const page = "GET /docs/ HTTP/1.1\r\nHost: g\r\n";
    reader.write(`${`${page}\r\n`.repeat(59)}${page}Connection: close\r\n\r\n`); // more than the kernel buffers
    for (let i = 0; i < 20; i++) expect(await get()).toMatchObject({ status: 200 }); // meanwhile all are answered
    await begin();
    for (let i = 0; i < 20; i++) expect(await get()).toMatchObject({ status: 200 });
    expect((await text(reader)).match(/HTTP\/1\.1 \d{3}/g)).toEqual(Array(60).fill("HTTP/1.1 200"));
  });

  test("requests that are held are not among those that wait in an overload, however many they are", async () => {
    const etag = header(await get("/v1/inventory/1"), "ETag");
    const waits = { path: "/v1/inventory/1", headers: { ...headers, prefer: "wait=60", "if-none-match": etag } };
    const held: Promise<Response>[] = [];
    while (held.length < 5) {
      held.push(callApi(system.address, waits));
      await until(async () => (await metric("gateway_held_requests")) === held.length);
    }
    await begin();
    for (let i = 0; i < 20; i++) expect(await get()).toMatchObject({ status: 200 });
    const quantity = (await get("/v1/inventory/1")).json<{ quantity: number }>().quantity + 1;
    expect(await patch(quantity)).toMatchObject({ status: 200 });
    for (const answer of held) expect((await answer).json()).toMatchObject({ petId: 1, quantity });
  });

  test("requests that wait for their body or for an upstream are not among those that wait", async () => {
    const updates = Array.from({ length: 5 }, () => openUpdate(system));
    const calls = Array.from({ length: 5 }, () => get("/v1/store/orders"));
    await delay(1_000); // from then on it is the upstream that they wait for
    expect(await get()).toMatchObject({ status: 200 });
    await begin();
    for (let i = 0; i < 20; i++) expect(await get()).toMatchObject({ status: 200 });
    for (const { finish } of updates) expect(await finish()).toBe(200);
    for (const call of calls) expect(await call).toMatchObject({ status: 504 });
  });

  test("refuses no request while fewer than OVERLOAD_REQUESTS wait", async () => {
    await system.inventory.kill("SIGSTOP");
    const waiting = get();
    expect(await get("/docs/")).toMatchObject({ status: 200 });
    await begin();
    for (let i = 0; i < 20; i++) expect(await get("/docs/")).toMatchObject({ status: 200 });
    await system.inventory.kill("SIGCONT");
    expect(await waiting).toMatchObject({ status: 200 });
  });
});

/** Begins an update that waits for its body. */
function openUpdate({ address, keys }: System) {
  const { hostname, port } = new URL(`http://${address}`);
  const socket: Socket = connect(Number(port), hostname);
  let received: Buffer = Buffer.alloc(0);
  socket.on("data", (chunk) => {
    received = Buffer.concat([received, chunk]);
  });
  const head = ["PATCH /v1/inventory/1 HTTP/1.1", "Host: g", `Authorization: Bearer ${keys.enterprise}`];
  socket.write([...head, "Content-Type: application/json", `Content-Length: ${body.length}`, "\r\n"].join("\r\n"));
  return {
    /** @returns the status of the response */
    finish: async () => {
      socket.write(body);
      await until(() => readResponse(received, false, false) !== undefined);
      socket.destroy();
      return readResponse(received, false, false)!.status;
    },
  };
}
