import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { Router } from "express";
import { startPublicServer } from "../../test/support/public-server.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { until } from "../../test/support/until.ts";
import { writeJson } from "./json.ts";

const { jest } = import.meta;
const stack = suiteStack();
const timeoutMs = 60_000;
const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: g\r\n\r\n`;
const small = JSON.stringify("x".repeat(8_000));
const long = Buffer.alloc(16 * 1024 * 1024); // far more than the kernel takes at once

beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ["Date", "nextTick", "performance", "setImmediate", "setTimeout", "clearTimeout"] });
});
afterEach(() => void jest.useRealTimers());

/** Lets a part of the time-out pass, or a multiple of it. */
const pass = (share: number) => jest.advanceTimersByTime(share * timeoutMs);

/** How much of what is sent on a connection the kernel has not taken. */
function leftOf(socket: Socket): number {
  const { _handle: handle } = socket as Socket & { _handle: { readonly writeQueueSize: number } };
  return handle.writeQueueSize;
}

/** Starts a server that answers `/small` at once; the test answers all other requests. */
async function start({ isOverloaded = false } = {}) {
  const requests: { readonly request: IncomingMessage; readonly response: ServerResponse }[] = [];
  let entered = 0;
  const publicServer = await startPublicServer(stack, {
    router: Router().use((request, response) => {
      if (request.url === "/small") writeJson(request, response, 200, small, []);
      else requests.push({ request, response });
    }),
    stallTimeoutMs: timeoutMs,
    overload: {
      enter: () => {
        entered += 1;
        return !isOverloaded;
      },
    },
  });
  const { server, port } = publicServer;
  return {
    ...publicServer,
    requests,
    /** Requests that are answered, refused or waiting for the test. */
    entered: () => entered,
    /** Opens a client that reads nothing until it is told to. */
    open: async () => {
      const client = connect(port, "127.0.0.1").on("error", () => {});
      stack.defer(() => void client.destroy());
      const [accepted] = (await once(server, "connection")) as [Socket];
      return { client, accepted, closed: once(accepted, "close") };
    },
    /** Sends a request that the test answers. */
    ask: async (client: Socket) => {
      const count = requests.length;
      client.write(get("/"));
      await until(() => requests.length > count);
      return requests.at(-1)!.response;
    },
  };
}

test.each([
  ["answers", false],
  ["refusals in an overload", true],
])("a client that takes nothing is cut off, however small its %s are", async (_what, isOverloaded) => {
  const { open, entered } = await start({ isOverloaded });
  const { client, accepted, closed } = await open();
  for (let sent = 50; accepted.writableLength === 0; sent += 50) {
    client.write(get("/small").repeat(50)); // less than may wait behind a request
    await until(() => accepted.writableLength > 0 || entered() === sent, { everyMs: 1 });
  }
  pass(1.1);
  await closed;
});

test("a stop waits 5 s for a client that takes nothing", async () => {
  const { open, ask, server, close } = await start();
  const { client, closed } = await open();
  (await ask(client)).end(long);
  const stopped = close();
  await until(() => !server.listening);
  jest.advanceTimersByTime(5_500);
  await Promise.all([closed, stopped]);
});

test("a client that takes its answer slowly gets the whole of it, also when that is one write", async () => {
  const { open, ask } = await start();
  const { client, accepted } = await open();
  const response = await ask(client);
  response.end(long);
  let received = 0;
  while (received < long.length) {
    pass(0.9);
    const before = received;
    const left = leftOf(accepted);
    await until(() => {
      received += client.read()?.length ?? 0;
      return left === 0 ? received > before : leftOf(accepted) < left;
    });
  }
  expect(response.writableFinished).toBe(true);
});

test("a client whose answer the kernel has taken is not cut off, and gets its next one", async () => {
  const { open, ask } = await start();
  const { client } = await open();
  const first = await ask(client);
  first.end("first");
  await once(first, "close");
  const held = await ask(client);
  pass(10);
  held.end("held");
  client.resume();
  await once(held, "close");
  expect(held.writableFinished).toBe(true);
});
