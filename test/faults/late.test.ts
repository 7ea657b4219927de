// What comes late: bytes between the tiers, a gateway or a service that was frozen. Nothing of it may undo what was
// acknowledged meanwhile.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { createInventoryClient } from "../../client/index.ts";
import { request } from "../support/http.ts";
import { callerOf, startInventoryService } from "../support/inventory-service.ts";
import { type Link, startLink } from "../support/link.ts";
import type { RunningProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const stack = suiteStack();
let system: System;
let other: RunningProcess;
let link: Link;

beforeAll(async () => {
  const petIds = Array.from({ length: 20_000 }, (_, i) => BigInt(i + 1));
  const seed = petIds.map((petId) => ({ petId, quantity: 100, status: "available" as const }));
  system = await startSystem({ seed, gateways: 0, gatewayEnv: { LOG_LEVEL: "fatal" } });
  stack.defer(() => system.close());
  other = await startInventoryService(stack, system.databaseUrls.inventory);
  link = await startLink(stack, portOf(system.inventory.listen));
});

const portOf = (address: string) => Number(address.split(":").at(-1));

function patch(address: string, petId: number, quantity: number, headers: Record<string, string> = {}) {
  return request(address, {
    path: `/v1/inventory/${petId}`,
    method: "PATCH",
    headers: { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json", ...headers },
    body: JSON.stringify({ quantity }),
  });
}

test("bytes that are late between the tiers do not write an update that got 504 over a newer one", async () => {
  const gateway = await system.startGateway({ INVENTORY_ADDRESS: `127.0.0.1:${link.port}` });
  const inventory = callerOf(stack, other);
  await until(async () => (await patch(gateway.listen, 2, 1)).status === 200); // the session is open
  link.delayMs = 6_500;
  expect((await patch(gateway.listen, 1, 7)).status).toBe(504);
  link.delayMs = 0;
  expect(await inventory.update({ petId: 1n, quantity: 8 })).toMatchObject({ item: { quantity: 8 } });
  await delay(2_500); // the late bytes have arrived by then
  expect(await system.stored(1n)).toMatchObject({ quantity: 8 });
  await gateway.stop();
});

test("an adjustment that is late at one service is not refused at another one before it is made", async () => {
  // Bytes to the first service are late. Then the connection breaks at the client's end alone.
  let target = portOf(system.inventory.listen);
  let delayMs = 0;
  const callers: Socket[] = [];
  const proxy = createServer((caller) => {
    callers.push(caller);
    const service = connect(target, "127.0.0.1");
    for (const socket of [caller, service]) socket.on("error", () => {});
    caller.on("data", (bytes) =>
      delayMs > 0 ? setTimeout(() => service.write(bytes), delayMs) : service.write(bytes),
    );
    service.on("data", (bytes) => caller.destroyed || caller.write(bytes));
    stack.defer(() => void service.destroy());
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  stack.defer(() => void proxy.close());
  const client = createInventoryClient({ address: `127.0.0.1:${(proxy.address() as AddressInfo).port}` });
  stack.defer(() => client.close());
  await client.update({ petId: 3n, quantity: 3 });
  delayMs = 1_500;
  const sale = client.adjust({ petId: 3n, delta: -5, requestId: "late:1" });
  await delay(200);
  delayMs = 0;
  target = portOf(other.listen);
  for (const caller of callers) caller.resetAndDestroy();
  await delay(500); // by now the other service has refused the repeat
  expect(await callerOf(stack, other).adjust({ petId: 3n, delta: 10, requestId: "late:2" })).toMatchObject({
    item: { quantity: 13 },
  });
  expect(await sale).toMatchObject({ item: { quantity: 8 } });
  expect(await system.stored(3n)).toMatchObject({ quantity: 8 });
});

test("a service takes no question after the end of its stream, also while the end is held up", async () => {
  // Nothing comes back to the client for a while: what the service sends fills the connection.
  const paused: Socket[] = [];
  let isFull = false;
  const proxy = createServer((caller) => {
    const target = connect(portOf(other.listen), "127.0.0.1");
    caller.on("error", () => {}).on("close", () => target.destroy());
    target.on("error", () => {}).on("close", () => caller.destroy());
    caller.on("data", (bytes) => target.write(bytes));
    target.on("data", (bytes) => caller.write(bytes));
    paused.push(target);
    if (isFull) target.pause();
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  stack.defer(() => void proxy.close());
  const address = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const client = createInventoryClient({ address, timeoutMs: 6_000 });
  stack.defer(() => client.close());
  const { revision } = await client.update({ petId: 2n, quantity: 1_000 });
  await delay(7_300); // the session ends after 8 s
  isFull = true;
  for (const socket of paused) socket.pause();
  const lists = Array.from({ length: 60 }, () =>
    Array.fromAsync(client.list({ silenceTimeoutMs: 30_000 })).catch(() => {}),
  );
  await delay(900);
  const update = client.update({ petId: 2n, quantity: 1_001, expectedRevision: revision });
  await delay(600);
  isFull = false;
  for (const socket of paused) socket.resume();
  expect(await update).toMatchObject({ quantity: 1_001, revision: revision + 1n });
  await Promise.all(lists);
});

test("a gateway that was frozen writes no update of a caller that has left over a newer one", async () => {
  const gateway = await system.startGateway();
  const inventory = callerOf(stack, other);
  const body = '{"quantity":7}';
  for (let round = 0; round < 8; round++) {
    await until(async () => (await patch(gateway.listen, 2, round)).status === 200);
    await gateway.kill("SIGSTOP");
    const caller = connect(portOf(gateway.listen), "127.0.0.1");
    caller.write(
      `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${system.keys.enterprise}\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    await delay(100);
    caller.destroy();
    expect(await inventory.update({ petId: 1n, quantity: 10 + round })).toMatchObject({
      item: { quantity: 10 + round },
    });
    await gateway.kill("SIGCONT");
    await until(async () => (await patch(gateway.listen, 2, 50)).status === 200);
    await delay(800);
    expect(await system.stored(1n)).toMatchObject({ quantity: 10 + round });
  }
  await gateway.stop();
});

test("a client that has only ended its side has its update done", async () => {
  const gateway = await system.startGateway();
  const body = '{"quantity":77}';
  const caller = connect({ port: portOf(gateway.listen), host: "127.0.0.1", allowHalfOpen: true });
  caller.end(
    `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${system.keys.enterprise}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
  );
  const answer = Buffer.concat(await Array.fromAsync(caller as AsyncIterable<Buffer>)).toString();
  expect(answer).toMatch(/HTTP\/1\.1 200 OK/);
  expect(await system.stored(1n)).toMatchObject({ quantity: 77 });
  await gateway.stop();
});

test("a frozen service is left after a second where another one answers", async () => {
  const addresses = `ipv4:${system.inventory.listen},${other.listen}`;
  const gateway = await system.startGateway({ INVENTORY_ADDRESS: addresses });
  const get = () =>
    request(gateway.listen, {
      path: "/v1/inventory/3",
      headers: { authorization: `Bearer ${system.keys.enterprise}` },
    });
  for (let i = 0; i < 50; i++) await patch(gateway.listen, 3, i);
  await other.kill("SIGSTOP");
  stack.defer(() => other.kill("SIGCONT"));
  // What was sent to the frozen one may be lost. So let one update find it, and go on after two seconds.
  const first = [get(), ...[1, 2, 3, 4].map((quantity) => patch(gateway.listen, 3, quantity))];
  await delay(2_500);
  for (let i = 0; i < 40; i++) {
    const answers = await Promise.all([get(), patch(gateway.listen, 3, 100 + i)]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    await delay(100);
  }
  await Promise.all(first);
  await other.kill("SIGCONT");
  await gateway.stop();
});
