import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http2";
import type { AddressInfo, Server } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { Server as GrpcServer, ServerCredentials } from "@grpc/grpc-js";
import type { ChannelTls } from "../../client/channel.ts";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { createAuthority } from "../../test/support/certificates.ts";
import { freePort } from "../../test/support/ports.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { blamingService } from "./service-fault.ts";
import { openStockClient } from "./stock-client.ts";

const stack = suiteStack();

/** Has a gateway use what answers at this port. @returns what its operator is told */
async function faultAt(port: number, tls?: ChannelTls, callTimeoutMs = 20_000): Promise<string> {
  const client = openStockClient({
    address: `127.0.0.1:${port}`,
    tls,
    ...{ callTimeoutMs, keyedTimeoutMs: 20_000 },
    onCheck: () => {},
  });
  try {
    await blamingService(async () => {
      for await (const _part of client.load(undefined));
    });
    throw new Error("the service can be used");
  } catch (error) {
    return (error as Error).message;
  } finally {
    client.close();
  }
}

async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  stack.defer(() => void server.close());
  return (server.address() as AddressInfo).port;
}

test("an operator is told that no service answers at the address of the inventory service", async () => {
  expect(await faultAt(await freePort())).toMatch(
    /^INVENTORY_ADDRESS \(inventory-svc\): no service answers \(.*ECONNREFUSED.*\)$/,
  );
});

test("an operator is told that the service's certificate cannot be trusted, or has another name", async () => {
  const [own, other] = [await createAuthority(stack), await createAuthority(stack)];
  const { cert, key } = await own.issue({ names: ["DNS:elsewhere.example"] });
  const port = await listen(
    createTlsServer({ cert: await readFile(cert), key: await readFile(key), ALPNProtocols: ["h2"] }),
  );
  for (const { ca } of [own, other]) {
    const files = { ...(await own.issue({ names: ["DNS:gateway"] })), ca };
    const fault = await faultAt(port, { ...files, serverName: "inventory.example" });
    expect(fault).toContain("the service's certificate cannot be trusted (ca), or is for another name (serverName)");
    expect(fault).toContain("see GATEWAY_INVENTORY_TLS_CA and GATEWAY_INVENTORY_TLS_SERVER_NAME");
  }
});

test("an operator is told that the service has TLS and the gateway does not", async () => {
  const { cert, key } = await (await createAuthority(stack)).issue({ names: ["DNS:inventory"] });
  const port = await listen(createTlsServer({ cert: await readFile(cert), key: await readFile(key) }));
  expect(await faultAt(port)).toContain("only one side uses TLS");
});

test("an operator is told in one line that the gateway has TLS and the service does not", async () => {
  const files = await (await createAuthority(stack)).issue({ names: ["DNS:gateway"] });
  const fault = await faultAt(await listen(createServer()), { ...files, serverName: "inventory.example" });
  expect(fault).toContain("what answers there is no gRPC of this kind");
  expect(fault).not.toContain("\n");
});

test("an operator is told which setting gives a slow service more time to send the list", async () => {
  const server = new GrpcServer();
  server.addService(InventoryServiceService, { listInventory: () => {} } as never);
  const port = await new Promise<number>((resolve) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (_error, bound) => resolve(bound));
  });
  stack.defer(() => server.forceShutdown());
  expect(await faultAt(port, undefined, 300)).toBe(
    "INVENTORY_ADDRESS (inventory-svc): DEADLINE_EXCEEDED: the service sent no further part in time (where it is only slow, INVENTORY_TIMEOUT_MS gives it more time)",
  );
});
