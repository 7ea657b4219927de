import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import type { Request, Response } from "express";
import { suiteStack } from "../../test/support/cleanup.ts";
import { type RequestContext, setContext } from "../http/request-context.ts";
import { HeldVersions } from "./list/held-versions.ts";
import { type Body, Snapshot } from "./list/snapshot.ts";
import { listInventory } from "./read-handlers.ts";

const stack = suiteStack();

test("a client that leaves before its list is compressed holds no version of it", async () => {
  const compressed = Promise.withResolvers<Body>();
  const snapshot = new Snapshot("epoch", 1n, []);
  snapshot.gzip = () => compressed.promise;
  const held = new HeldVersions(0);
  const hold = import.meta.jest.spyOn(held, "hold");
  const handler = listInventory({ list: { current: async () => snapshot }, held, stallTimeoutMs: 1_000 });
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  stack.defer(() => void server.close());
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.write("GET / HTTP/1.1\r\nHost: g\r\nAccept-Encoding: gzip\r\n\r\n");
  const [request, response] = (await once(server, "request")) as [Request, Response];
  setContext(response, { principal: { accountId: "acme" } } as RequestContext);
  const answered = handler(request, response, () => {});
  socket.destroy();
  await once(response, "close");
  const pieces = [Buffer.alloc(1_000_000)];
  compressed.resolve({ pieces, length: 1_000_000, text: undefined });
  await answered;
  expect(hold).not.toHaveBeenCalled();
});
