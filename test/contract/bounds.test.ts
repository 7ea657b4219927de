// Bounds that no other file checks; docs/operations/outages.md lists all of them.
import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { Metadata, Server, ServerCredentials, type ServerDuplexStream, type ServerWritableStream } from "@grpc/grpc-js";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { expectError } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { connectInventory, statusOf } from "../support/grpc.ts";
import { type LocalGateway, startLocalGateway } from "../support/local-gateway.ts";
import { suiteStack } from "../support/stack.ts";
import { type Env, type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const stack = suiteStack();
let system: System;
beforeAll(async () => {
  system = await startSystem({
    gatewayEnv: { MAX_CONNECTIONS: "4", TRUSTED_PROXIES: "127.0.0.9", KEEP_ALIVE_TIMEOUT_MS: "2500" },
  });
  stack.defer(() => system.close());
});

function open(address: string, from = "127.0.0.1") {
  const { hostname, port } = new URL(`http://${address}`);
  const socket = connect({ port: Number(port), host: hostname, localAddress: from }).on("error", () => {});
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.resume();
  stack.defer(() => void socket.destroy());
  return { socket, closed };
}

/** Starts a gateway in this process whose inventory service is a server of the test. */
async function startGatewayOf(service: Server, env: Env): Promise<LocalGateway> {
  const port = await new Promise<number>((resolve, reject) => {
    service.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  stack.defer(() => service.forceShutdown());
  const gateway = await startLocalGateway({ ...system.gatewayEnv, INVENTORY_ADDRESS: `127.0.0.1:${port}`, ...env });
  stack.defer(() => gateway.close());
  return gateway;
}

test("an address has half of MAX_CONNECTIONS, and a trusted proxy all that are left", async () => {
  const clients = [open(system.address), open(system.address)];
  await open(system.address).closed;
  const proxied = ["127.0.0.9", "127.0.0.9"].map((proxy) => open(system.address, proxy));
  await open(system.address, "127.0.0.9").closed;
  const path = "/v1/nothing";
  for (const { socket } of proxied) {
    socket.write(`GET ${path} HTTP/1.1\r\nHost: g\r\n\r\n`);
    await once(socket, "data");
    socket.destroy();
  }
  for (const { socket } of clients) socket.destroy();
  await until(() =>
    callApi(system.address, { path }).then(
      ({ status }) => status === 401,
      () => false,
    ),
  );
});

test("a connection without a further request is closed after KEEP_ALIVE_TIMEOUT_MS, not before", async () => {
  const { socket, closed } = open(system.address);
  socket.write("GET /docs/ HTTP/1.1\r\nHost: g\r\n\r\n");
  const sentMs = performance.now();
  await closed;
  expect(performance.now() - sentMs).toBeGreaterThan(2_400);
});

test("a gateway catches up with more changes than its deadline allows while parts keep coming", async () => {
  const [timeoutMs, parts] = [3_000, 5]; // a quarter of the time for each part: five of them take longer than it
  const service = new Server();
  const part = (petId: number, revision: bigint) => ({
    epoch: "e",
    revision,
    items: [{ petId: BigInt(petId), quantity: 1, status: 1, revision, removed: false }],
    floor: 0n,
    more: petId < parts,
    reset: false,
  });
  service.addService(InventoryServiceService, {
    listInventory: (call: ServerWritableStream<unknown, unknown>) => {
      call.write({ items: [], epoch: "e", revision: 1n });
      call.end();
    },
    checkInventory: (call: ServerDuplexStream<unknown, unknown>) => {
      call.sendMetadata(new Metadata());
      call.on("data", async (asked: { revision: bigint }) => {
        for (let petId = 1; petId <= parts; petId++) {
          await delay(timeoutMs * 0.25);
          call.write(part(petId, asked.revision + 1n));
        }
      });
    },
  } as never);
  const gateway = await startGatewayOf(service, { INVENTORY_TIMEOUT_MS: String(timeoutMs) });
  const headers = { authorization: `Bearer ${system.keys.pro}` };
  const answers = [callApi(gateway.address, { path: "/v1/inventory", headers })];
  await delay(timeoutMs * 0.2);
  answers.push(callApi(gateway.address, { path: "/v1/inventory", headers })); // waits for the next check, just as long
  for (const answer of await Promise.all(answers)) {
    expect(answer.status).toBe(200);
    expect(answer.text.match(/"petId"/g)).toHaveLength(parts);
  }
});

test("a list of which no part arrives within INVENTORY_TIMEOUT_MS is 504", async () => {
  const service = new Server();
  service.addService(InventoryServiceService, { listInventory: () => {} } as never);
  const gateway = await startGatewayOf(service, { INVENTORY_TIMEOUT_MS: "200" });
  const headers = { authorization: `Bearer ${system.keys.pro}` };
  expectError(await callApi(gateway.address, { path: "/v1/inventory", headers }), 504, "timeout");
});

test("a gRPC message of more than 2 MiB is RESOURCE_EXHAUSTED, and the service goes on", async () => {
  const inventory = connectInventory(system.inventory.listen);
  stack.defer(() => inventory.close());
  const stream = inventory.applyChanges();
  const changes = [{ petId: 1n, reason: "x".repeat(2 * 1024 * 1024) }];
  stream.send({ groups: [{ changes, deadlineMs: 10_000 }] });
  expect(await statusOf(stream.next())).toBe("RESOURCE_EXHAUSTED");
  expect(await statusOf(inventory.get({ petId: 1n }))).toBe("NOT_FOUND");
});

test("a gRPC message takes a thousand changes, each as large as it may be", async () => {
  const inventory = connectInventory(system.inventory.listen);
  stack.defer(() => inventory.close());
  const stream = inventory.applyChanges();
  const id = "x".repeat(64);
  const change = {
    petId: -1n,
    quantity: 2_147_483_647,
    expectedRevisions: Array.from({ length: 20 }, () => -1n),
    reason: "\u{1f431}".repeat(200),
  };
  const group = {
    changes: [change],
    deadlineMs: 2 ** 32 - 1,
    idempotencyKey: { account: id, key: id, fingerprint: id },
    traceparent: `00-${"1".repeat(32)}-${"1".repeat(16)}-00`,
    account: id,
    keyId: id,
    originRequestId: id,
  };
  stream.send({ groups: Array.from({ length: 1_000 }, () => group) });
  const { results } = (await stream.next()) as { readonly results: readonly unknown[] };
  expect(results).toHaveLength(1_000);
});
