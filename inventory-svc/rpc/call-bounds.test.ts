import { once } from "node:events";
import { type ClientHttp2Session, connect, constants } from "node:http2";
import { gzipSync } from "node:zlib";
import { ServerCredentials } from "@grpc/grpc-js";
import { BatchGetInventoryItemsRequest } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Position } from "../../proto/pet.ts";
import { connectInventory } from "../../test/support/grpc.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { createRpcServer } from "../grpc-server.ts";
import type { ChangesPage } from "../stock/stock-store.ts";
import { boundedInventoryService } from "./call-bounds.ts";
import { type HandlerDeps, inventoryHandlers } from "./handlers.ts";

const { jest } = import.meta;
const stack = suiteStack();
const path = (call: string) => `/petstore.inventory.v1.InventoryService/${call}`;
const framed = (message: Buffer, isCompressed = 0) => {
  const head = Buffer.from([isCompressed, 0, 0, 0, 0]);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
};
const noChanges = async (position: Position): Promise<ChangesPage> => {
  return { kind: "changes", position, floor: 0n, rows: [], more: false };
};

/** Serves an empty stock. */
async function serve(changesAfter = noChanges, overrides: Partial<HandlerDeps> = {}) {
  const handlers = inventoryHandlers({
    store: { get: async () => undefined, getMany: async () => new Map(), changesAfter },
    draining: new AbortController().signal,
    actorOf: () => ({ kind: "internal" }),
    onCall: () => {},
    ...overrides,
  } as Partial<HandlerDeps> as HandlerDeps);
  const server = createRpcServer({
    handlers,
    credentials: ServerCredentials.createInsecure(),
    maxConnectionAgeMs: 600_000,
    connectionGraceMs: 60_000,
  });
  stack.defer(() => server.close(0));
  return await server.listen({ host: "127.0.0.1", port: 0 });
}

/** Connects without a gRPC library. */
function connectTo(address: string, settings = {}): ClientHttp2Session {
  const session = connect(`http://${address}`, { settings }).on("error", () => {});
  stack.defer(() => session.destroy());
  return session;
}

function open(session: ClientHttp2Session, call: string, headers = {}) {
  const method = { ":method": "POST", ":path": call, "content-type": "application/grpc", te: "trailers" };
  return session.request({ ...method, ...headers }).on("error", () => {});
}

/** Sends one message. @returns the status of its call */
async function statusAfter(session: ClientHttp2Session, call: string, message: Buffer, headers = {}) {
  const stream = open(session, call, headers);
  return await new Promise<string>((resolve) => {
    const take = (answer: Record<string, unknown>) =>
      answer["grpc-status"] && resolve(`${answer["grpc-status"]} ${answer["grpc-message"]}`);
    stream.on("response", take).on("trailers", take).resume().end(message);
  });
}

test.each([path("GetInventoryItem"), path("ApplyChanges"), "/grpc.health.v1.Health/Check"])(
  "a compressed message is refused before it is decompressed: %s",
  async (call) => {
    const session = connectTo(await serve());
    for (const encoding of ["gzip", "deflate", "x"]) {
      const message = framed(gzipSync(Buffer.alloc(0)), 1);
      const status = await statusAfter(session, call, message, { "grpc-encoding": encoding });
      expect(decodeURIComponent(status)).toBe("12 messages must not be compressed");
    }
    expect(await statusAfter(session, call, framed(Buffer.alloc(0)), { "grpc-encoding": "identity" })).not.toMatch(
      /^12/,
    );
  },
);

test.each([
  ["a million empty groups", "ApplyChanges", Buffer.alloc(2_000_000, Buffer.from([10, 0]))],
  [
    "a million ids",
    "BatchGetInventoryItems",
    Buffer.from(BatchGetInventoryItemsRequest.encode({ petIds: Array(1_000_000).fill(1n) }).finish()),
  ],
])("a message of %s is given up while it is decoded", async (_, call, message) => {
  const session = connectTo(await serve());
  const status = await statusAfter(session, path(call), framed(message));
  expect(decodeURIComponent(status)).toBe("13 Error deserializing request");
});

test("a stream of questions decodes no message before it has answered the one before", async () => {
  const decode = jest.spyOn(boundedInventoryService.checkInventory, "requestDeserialize");
  const answering = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  const address = await serve(async (position) => {
    asked.resolve();
    await answering.promise;
    return await noChanges(position);
  });
  const inventory = connectInventory(address);
  stack.defer(() => inventory.close());
  const stream = inventory.check();
  const epoch = "e".repeat(20_000); // more than a frame
  const sent = Array.from(
    { length: 10 },
    (_, i) => new Promise((resolve) => stream.call.write({ epoch, revision: BigInt(i) }, resolve)),
  );
  await Promise.all([asked.promise, ...sent]);
  for (let i = 0; i < 10; i++) await inventory.get({ petId: 1n }).catch(() => {}); // on the same connection
  expect(decode).toHaveBeenCalledTimes(1);
  answering.resolve();
  for (let i = 0; i < 10; i++) expect(await stream.next()).toMatchObject({ revision: BigInt(i) });
  expect(decode).toHaveBeenCalledTimes(10);
  decode.mockRestore();
});

test("a connection carries at most 1,024 calls at a time", async () => {
  const [settings] = await once(connectTo(await serve()), "remoteSettings");
  expect(settings).toMatchObject({ maxConcurrentStreams: 1_024 });
});

describe("a message that its caller does not take for a minute ends the call", () => {
  beforeEach(() => {
    const others = ["Date", "nextTick", "performance", "setImmediate", "setInterval", "queueMicrotask"] as const;
    jest.useFakeTimers({ doNotFake: [...others] });
  });
  afterEach(() => void jest.useRealTimers());

  test.each(["ListInventory", "CheckInventory", "WatchInventory"])("%s", async (call) => {
    const asked = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    const position = { epoch: "e", revision: 1n };
    const page = { ...(await noChanges(position)), more: true, position };
    async function* pages() {
      try {
        for (;;) {
          asked.resolve();
          yield page;
        }
      } finally {
        ended.resolve();
      }
    }
    const check = async () => {
      asked.resolve();
      ended.resolve();
      return page;
    };
    const address = await serve(check, { lists: { load: pages }, feed: { follow: pages } } as never);
    const session = connectTo(address, { initialWindowSize: 0 });
    /** Until both ends have sent what they had to send. */
    const meanwhile = () => new Promise((resolve) => session.ping(resolve));
    await once(session, "remoteSettings");
    const stream = open(session, path(call));
    stream.end(framed(Buffer.alloc(0)));
    await asked.promise;
    await meanwhile();
    jest.advanceTimersByTime(59_500);
    await meanwhile();
    expect(stream.closed).toBe(false);
    jest.advanceTimersByTime(1_000);
    await meanwhile();
    expect([stream.closed, stream.rstCode]).toEqual([true, constants.NGHTTP2_CANCEL]);
    await ended.promise;
  });
});
