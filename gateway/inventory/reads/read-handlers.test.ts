import { once } from "node:events";
import { createServer, IncomingMessage, ServerResponse } from "node:http";
import { type AddressInfo, connect, Socket } from "node:net";
import type { Request, Response } from "express";
import { collectGarbage } from "../../../test/support/garbage.ts";
import { suiteStack } from "../../../test/support/stack.ts";
import { ApiError } from "../../http/api-error.ts";
import { type RequestContext, setContext } from "../../http/request-context.ts";
import { PinnedBodies } from "../list/pinned-bodies.ts";
import { type Body, Snapshot } from "../list/snapshot.ts";
import { LongPolls } from "./long-polls.ts";
import { getInventoryItem, listInventory, listInventoryChanges } from "./read-handlers.ts";

const stack = suiteStack();

/** Serves the list to one client. @returns its response, and the handling of it */
async function serveList(
  snapshot: () => Snapshot,
  compressed: Promise<Body>,
  pinnedBodies: PinnedBodies,
  field = "",
): Promise<{ socket: Socket; request: Request; response: Response; answered: Promise<unknown> }> {
  const list = {
    readFresh: async () => snapshot(),
    gzipOf: async ({ gzipEtag }: Snapshot) => {
      const etag = gzipEtag; // a function that waits keeps its arguments
      return compressed.then((body) => ({ etag, body }));
    },
  };
  const handler = listInventory({
    list,
    admission: { reverifyKeyAndBan: async () => {} },
    pinnedBodies,
    allowanceMs: 10_000,
  });
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  stack.defer(() => void server.close());
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  stack.defer(() => void socket.destroy());
  socket.write(`GET /?${field} HTTP/1.1\r\nHost: g\r\nAccept-Encoding: gzip\r\nX-Field: ${field}\r\n\r\n`);
  const [request, response] = (await once(server, "request")) as [Request, Response];
  setContext(response, { token: "", principal: { accountId: "acme" } } as RequestContext);
  return { socket, request, response, answered: Promise.resolve(handler(request, response, () => {})) };
}

test("a client that leaves before its list is compressed holds no version of it", async () => {
  const compressed = Promise.withResolvers<Body>();
  const pinnedBodies = new PinnedBodies(0);
  const pin = import.meta.jest.spyOn(pinnedBodies, "pin");
  const { socket, response, answered } = await serveList(
    () => new Snapshot("epoch", 1n, []),
    compressed.promise,
    pinnedBodies,
  );
  socket.destroy();
  await once(response, "close");
  const pieces = [Buffer.alloc(1_000_000)];
  compressed.resolve({ pieces, length: 1_000_000, text: undefined });
  await answered;
  expect(pin).not.toHaveBeenCalled();
});

test("a client that takes its compressed list slowly keeps what is sent alive, and not the list", async () => {
  const pieces = Array.from({ length: 40 }, () => Buffer.alloc(1_000_000));
  const made: WeakRef<Snapshot>[] = [];
  const listed = () => {
    const snapshot = new Snapshot("epoch", 1n, []);
    made.push(new WeakRef(snapshot));
    return snapshot;
  };
  const compressed = Promise.resolve({ pieces, length: 40_000_000, text: undefined });
  const { socket } = await serveList(listed, compressed, new PinnedBodies(100_000_000));
  await once(socket, "readable"); // from then on it reads nothing more
  collectGarbage();
  expect(made[0]!.deref()).toBeUndefined();
});

test("while a list is sent, nothing is kept of the head of its request", async () => {
  const snapshot = () => new Snapshot("epoch", 1n, []);
  const compressed = Promise.resolve({ pieces: [Buffer.alloc(40_000_000)], length: 40_000_000, text: undefined });
  const { socket, request } = await serveList(snapshot, compressed, new PinnedBodies(0), "x".repeat(3_000));
  await once(socket, "readable"); // from then on it reads nothing more
  const { rawHeaders, headers, url } = request;
  expect(JSON.stringify({ rawHeaders, headers, url }).length).toBeLessThan(100);
});

test("a reader of changes has left once its connection has closed", async () => {
  const asked = Promise.withResolvers<{ readonly hasLeft: () => boolean }>();
  const list = {
    readFresh: async () => new Snapshot("12345678", 1n, []),
    gzipOf: () => Promise.reject(new Error("not asked for")),
    changesSince: (_since: unknown, reader: { readonly hasLeft: () => boolean }) => {
      asked.resolve(reader);
      return new Promise<Body>(() => {});
    },
    last: undefined,
    onChange: () => {},
  };
  const admission = { isKeyKnownGood: () => true, reverifyKeyAndBan: async () => {}, readmit: async () => {} };
  const longPolls = new LongPolls({ list, max: 1, admission });
  const pinnedBodies = new PinnedBodies(0);
  const handler = listInventoryChanges({ list, admission, longPolls, pinnedBodies, allowanceMs: 10_000 });
  const request = Object.assign(new IncomingMessage(new Socket()), { url: "/?since=12345678-1" });
  const response = new ServerResponse(request);
  setContext(response, { arrivedMs: performance.now(), principal: { accountId: "acme" } } as RequestContext);
  void handler(request as unknown as Request, response as unknown as Response, () => {});
  const { hasLeft } = await asked.promise;
  expect(hasLeft()).toBe(false);
  response.destroy();
  expect(hasLeft()).toBe(true);
});

test.each([
  ["an entry", getInventoryItem, "/1"],
  ["changes", listInventoryChanges, "/?since=12345678-1"],
] as const)(
  "a wait for %s that fails before it begins is 401 for a key revoked meanwhile",
  async (_what, handle, url) => {
    const readFresh = () => Promise.reject(new ApiError("timeout"));
    const list = { readFresh, gzipOf: readFresh, changesSince: readFresh, last: undefined, onChange: () => {} };
    const reverifyKeyAndBan = () => Promise.reject(new ApiError("invalid_api_key"));
    const admission = { isKeyKnownGood: () => false, reverifyKeyAndBan, readmit: reverifyKeyAndBan };
    const longPolls = new LongPolls({ list, max: 1, admission });
    const handler = handle({ list, admission, longPolls, pinnedBodies: new PinnedBodies(0), allowanceMs: 10_000 });
    const request = Object.assign(new IncomingMessage(new Socket()), { url, params: { petId: "1" } });
    request.headers = { prefer: "wait=60", "if-none-match": "*" };
    const response = new ServerResponse(request);
    setContext(response, { arrivedMs: performance.now() - 3_000, principal: { accountId: "acme" } } as RequestContext);
    const answered = handler(request as unknown as Request, response as unknown as Response, () => {});
    await expect(answered).rejects.toMatchObject({ code: "invalid_api_key" });
  },
);
