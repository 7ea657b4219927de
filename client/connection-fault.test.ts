import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer } from "node:net";
import { suiteStack } from "../test/support/stack.ts";
import { createInventoryClient } from "./index.ts";

const stack = suiteStack();

test("a service that ends while a client connects is named before TLS, which it may not have", async () => {
  const ending = createServer((socket) => socket.on("error", () => {}).once("data", () => socket.resetAndDestroy()));
  ending.listen(0, "127.0.0.1");
  stack.defer(() => void ending.close());
  await once(ending, "listening");
  const client = createInventoryClient({ address: `127.0.0.1:${(ending.address() as AddressInfo).port}` });
  stack.defer(() => client.close());
  await expect(client.setStatus({ petId: 1n, status: "sold" })).rejects.toMatchObject({
    errorReason: "NOT_SENT",
    message: expect.stringMatching(
      /^UNAVAILABLE: the connection was closed before gRPC began \(.*ECONNRESET.*\): the service has ended, or only one side uses TLS/,
    ),
  });
});

test("a port of another protocol is named before TLS", async () => {
  const other = createHttpServer().listen(0, "127.0.0.1");
  stack.defer(() => void other.close());
  await once(other, "listening");
  const client = createInventoryClient({ address: `127.0.0.1:${(other.address() as AddressInfo).port}` });
  stack.defer(() => client.close());
  await expect(client.setStatus({ petId: 1n, status: "sold" })).rejects.toMatchObject({
    errorReason: "NOT_SENT",
    message: expect.stringMatching(
      /no gRPC of this kind \(.*\): the port is another one's, or only one side uses TLS$/,
    ),
  });
});
