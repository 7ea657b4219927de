import { EventEmitter, once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import { gzipSync } from "node:zlib";
import { ServerCredentials } from "@grpc/grpc-js";
import { ReflectionV1Implementation } from "@grpc/reflection/build/src/implementations/reflection-v1.js";
import {
  ApplyChangesRequest,
  BatchAdjustInventoryRequest,
  Change,
  ChangeGroup,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Position } from "../../proto/pet.ts";
import { connectInventory } from "../../test/support/grpc.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { createRpcServer } from "../grpc-server.ts";
import type { ChangesPage } from "../stock/stock-store.ts";
import { boundedInventoryService } from "./call-bounds.ts";
import { type HandlerDeps, inventoryHandlers } from "./handlers.ts";
import { serverStream } from "./served-calls.ts";

const { jest } = import.meta;
const stack = suiteStack();
const path = (call: string) => `/petstore.inventory.v1.InventoryService/${call}`;
const reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const framed = (message: Buffer, isCompressed = 0) => {
  const head = Buffer.from([isCompressed, 0, 0, 0, 0]);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
};
const noChanges = async (position: Position): Promise<ChangesPage> => {
  return { kind: "changes", position, floor: 0n, rows: [], more: false };
};

/** Serves an empty stock. */
async function start(changesAfter = noChanges, overrides: Partial<HandlerDeps> = {}) {
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
  return { server, address: await server.listen({ host: "127.0.0.1", port: 0 }) };
}

/** @returns the address of `start` */
async function serve(...args: Parameters<typeof start>): Promise<string> {
  return (await start(...args)).address;
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

const manyRevisions = Change.create({ petId: 1n, expectedRevisions: Array(1_000_000).fill(1n) });

test.each([
  ["a million empty groups", Buffer.alloc(2_000_000, Buffer.from([10, 0]))],
  [
    "a million revisions",
    Buffer.from(ApplyChangesRequest.encode({ groups: [ChangeGroup.create({ changes: [manyRevisions] })] }).finish()),
  ],
])("a message of %s is given up while it is decoded", async (_, message) => {
  const session = connectTo(await serve());
  const status = await statusAfter(session, path("ApplyChanges"), framed(message));
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

describe.each(["ListInventory", "WatchInventory", "GetInventoryItem"])("no %s begins", (call) => {
  /** Counts the handlers that have begun and not ended. */
  async function serveCounted() {
    const counted = { begun: 0, running: 0 };
    const position = { epoch: "e", revision: 1n };
    async function* pages() {
      counted.begun += 1;
      counted.running += 1;
      try {
        for (let i = 0; i < 3; i++) yield { ...(await noChanges(position)), position };
      } finally {
        counted.running -= 1;
      }
    }
    const get = async () => {
      counted.begun += 1;
      return { petId: 1n, quantity: 1, status: "available", revision: 1n, removed: false };
    };
    const store = { get, changesAfter: noChanges };
    const address = await serve(noChanges, { store, lists: { load: pages }, feed: { follow: pages } } as never);
    return { counted, session: connectTo(address) };
  }
  const message = framed(Buffer.alloc(0));
  const oversized = Buffer.from([0, 0, 0xff, 0xff, 0xff]); // the head of a message of 16 MiB

  test.each([
    ["whose time is over", "4", { "grpc-timeout": "5m" }, Buffer.alloc(0)],
    ["that was refused for a further message", "8", {}, oversized],
  ])("on a call %s when its request ends", async (_, status, headers, further) => {
    const { counted, session } = await serveCounted();
    const overBeforeItsEnd = async () => {
      const stream = open(session, path(call), headers).resume();
      stream.write(Buffer.concat([message, further]));
      const [answer] = await once(stream, "response");
      expect(answer["grpc-status"]).toBe(status);
      stream.end();
    };
    await Promise.all(Array.from({ length: 200 }, overBeforeItsEnd));
    expect(await statusAfter(session, path(call), message)).toBe("0 OK");
    expect(counted).toEqual({ begun: 1, running: 0 });
  });
});

test.each(["v1", "v1alpha"])("reflection %s makes no answer before the one before is taken", async (version) => {
  const reflect = jest.spyOn(ReflectionV1Implementation.prototype, "handleServerReflectionRequest");
  const session = connectTo(await serve(), { initialWindowSize: 0 });
  await once(session, "remoteSettings");
  const stream = open(session, `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`);
  const listServices = framed(Buffer.from([0x3a, 0x00]));
  stream.write(Buffer.concat(Array(10_000).fill(listServices)));
  // Each is answered after all that came before it on the connection.
  for (let i = 0; i < 20; i++) await statusAfter(session, "/petstore.Other/Call", Buffer.alloc(0));
  expect(reflect).toHaveBeenCalledTimes(1);
  reflect.mockRestore();
});

test.each([
  [path("GetInventoryItem"), 128],
  [path("CheckInventory"), 128],
  [path("ApplyChanges"), 2_048],
  ["/grpc.health.v1.Health/Check", 4],
  [reflection, 4],
])("%s refuses a message of more than %d KiB before it has come", async (call, kib) => {
  const stream = open(connectTo(await serve()), call).resume();
  const trailers = once(stream, "trailers");
  const response = once(stream, "response");
  stream.write(framed(Buffer.alloc(kib * 1024 + 1)).subarray(0, 5));
  const [answer] = await Promise.race([trailers, response.then(([head]) => (head["grpc-status"] ? [head] : trailers))]);
  expect(answer["grpc-status"]).toBe("8");
});

test("the longest valid adjustments are no message that is too long", async () => {
  const adjustments = Array.from({ length: 100 }, (_, i) => ({
    petId: 2n ** 63n - 1n - BigInt(i),
    delta: -1,
    expectedRevisions: Array(20).fill(2n ** 63n - 1n),
    reason: "\u{1F431}".repeat(200),
  }));
  const request = BatchAdjustInventoryRequest.create({ adjustments, requestId: "r".repeat(64) });
  const message = Buffer.from(BatchAdjustInventoryRequest.encode(request).finish());
  const status = await statusAfter(connectTo(await serve()), path("BatchAdjustInventory"), framed(message));
  expect(status).not.toMatch(/^8/);
});

test("a connection carries at most 1,024 calls at a time", async () => {
  const [settings] = await once(connectTo(await serve()), "remoteSettings");
  expect(settings).toMatchObject({ maxConcurrentStreams: 1_024 });
});

describe("within bounds of time", () => {
  beforeEach(() => {
    const others = ["Date", "nextTick", "performance", "setImmediate", "setInterval", "queueMicrotask"] as const;
    jest.useFakeTimers({ doNotFake: [...others] });
  });
  afterEach(() => void jest.useRealTimers());
  /** Until both ends have sent what they had to send. */
  const exchange = (session: ClientHttp2Session) => new Promise((resolve) => session.ping(resolve));
  /** Lets time go on to just before the service resets a stream, and then to just after it. */
  async function expectReset(session: ClientHttp2Session, stream: ClientHttp2Stream, afterMs: number, code: number) {
    jest.advanceTimersByTime(afterMs - 500);
    await exchange(session);
    expect(stream.closed).toBe(false);
    jest.advanceTimersByTime(1_000);
    await exchange(session);
    expect([stream.closed, stream.rstCode]).toEqual([true, code]);
  }

  const unread = ["ListInventory", "CheckInventory", "WatchInventory", "ListChanges"];
  test.each(unread)("a caller of %s takes each message in a minute, or the call is reset", async (call) => {
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
    const before = async () => {
      await check();
      return [];
    };
    const deps = { lists: { load: pages }, feed: { follow: pages }, history: { before }, keepsHistory: true };
    const session = connectTo(await serve(check, deps as never), { initialWindowSize: 0 });
    await once(session, "remoteSettings");
    const stream = open(session, path(call));
    stream.end(framed(Buffer.alloc(0)));
    await asked.promise;
    await exchange(session);
    await expectReset(session, stream, 60_000, constants.NGHTTP2_CANCEL);
    await ended.promise;
  });

  test("a place is free after that minute even if nothing tells that the call has ended", async () => {
    const waiting = Promise.withResolvers<void>();
    let isFree = false;
    async function* messages() {
      try {
        yield 1;
      } finally {
        isFree = true;
      }
    }
    // As with a socket that takes nothing: a message is not sent, and neither is the reset.
    const stuck = { request: {}, getPath: () => "", write: () => waiting.resolve(), call: { stream: { close() {} } } };
    serverStream(messages, () => {})(Object.assign(new EventEmitter(), stuck) as never);
    await waiting.promise;
    jest.advanceTimersByTime(60_000);
    await new Promise((resolve) => setImmediate(resolve));
    expect(isFree).toBe(true);
  });

  test.each([path("GetInventoryItem"), path("ListInventory"), "/grpc.health.v1.Health/Watch"])(
    "a request of one message ends within 15 s, or its call is reset: %s",
    async (call) => {
      const session = connectTo(await serve());
      await once(session, "remoteSettings");
      const late = open(session, call, { "grpc-timeout": "1S" }); // its deadline does not end what is kept of it
      const stream = open(session, call);
      for (const each of [late, stream]) each.resume().write(framed(Buffer.alloc(0)));
      await exchange(session);
      await expectReset(session, stream, 15_000, constants.NGHTTP2_CANCEL);
      expect(late.rstCode).toBe(constants.NGHTTP2_CANCEL);
    },
  );

  test.each([path("CheckInventory"), path("ApplyChanges"), reflection])(
    "a stream that the service has ended keeps what came of a message for 15 s: %s",
    async (call) => {
      const session = connectTo(await serve());
      await once(session, "remoteSettings");
      const stream = open(session, call).resume();
      stream.write(framed(Buffer.alloc(4_000)).subarray(0, -1));
      await once(stream, "response");
      await exchange(session);
      jest.advanceTimersByTime(8_000);
      await once(stream, "trailers");
      await exchange(session);
      await expectReset(session, stream, 15_000, constants.NGHTTP2_NO_ERROR);
    },
  );

  test("an answer to a caller that has left is not kept", async () => {
    const asked = Promise.withResolvers<void>();
    const answer = Promise.withResolvers<void>();
    const get = async () => {
      asked.resolve();
      await answer.promise;
      return { petId: 1n, quantity: 1, status: "sold", revision: 1n, removed: false };
    };
    const session = connectTo(await serve(noChanges, { store: { get } } as never));
    await once(session, "remoteSettings");
    await exchange(session);
    const timers = jest.getTimerCount();
    const stream = open(session, path("GetInventoryItem"));
    stream.end(framed(Buffer.alloc(0)));
    await asked.promise;
    stream.close(constants.NGHTTP2_CANCEL);
    for (let i = 0; i < 3; i++) await exchange(session);
    answer.resolve();
    await exchange(session);
    expect(jest.getTimerCount()).toBe(timers);
  });

  test("a stop ends a stream of reflection that its caller keeps open", async () => {
    const { server, address } = await start();
    const stream = open(connectTo(address), reflection).resume();
    await once(stream, "response");
    const trailers = once(stream, "trailers");
    const closed = server.close(60_000);
    expect((await trailers)[0]).toMatchObject({ "grpc-status": "0" });
    stream.end();
    await closed;
  });

  test("a watch whose request has ended lives on", async () => {
    const session = connectTo(await serve());
    const stream = open(session, "/grpc.health.v1.Health/Watch").resume();
    stream.end(framed(Buffer.alloc(0)));
    await once(stream, "response");
    jest.advanceTimersByTime(600_000);
    await exchange(session);
    expect(stream.closed).toBe(false);
  });
});
