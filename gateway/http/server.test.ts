import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { Router } from "express";
import { suiteStack } from "../../test/support/cleanup.ts";
import { startPublicServer } from "../../test/support/public-server.ts";
import { until } from "../../test/support/until.ts";

const stack = suiteStack();
const patch = (path: string) => `PATCH ${path} HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\n{}`;
const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: g\r\n\r\n`;
const tunnel = "CONNECT g:1 HTTP/1.1\r\nHost: g\r\n\r\n";
const invalid = [
  ["nonsense", "nonsense\r\n\r\n"],
  ["a CONNECT", tunnel],
] as const;

/** Starts a server whose requests the test answers, and a client of it that keeps its side open. */
async function open({ requestTimeoutMs = 60_000, keepAliveTimeoutMs = 60_000 } = {}) {
  const requests: { readonly request: IncomingMessage; readonly response: ServerResponse }[] = [];
  const closed: string[] = [];
  const malformed: string[] = [];
  let countWaitingForOthers = () => 0;
  const publicServer = await startPublicServer(stack, {
    router: Router().use((request, response) => {
      requests.push({ request, response });
      response.on("close", () => closed.push(request.url));
    }),
    keepAliveTimeoutMs,
    requestTimeoutMs,
    overload: {
      enter: (_response, countForOthers) => {
        countWaitingForOthers = countForOthers;
        return true;
      },
    },
    headersFor: () => ["X-RateLimit-Limit", "60"],
    onMalformed: ({ code }) => malformed.push(code),
  });
  const socket: Socket = connect({
    port: publicServer.port,
    host: "127.0.0.1",
    allowHalfOpen: true,
  });
  stack.defer(() => void socket.destroy());
  let received = "";
  socket
    .on("error", () => {})
    .on("data", (chunk) => {
      received += chunk;
    });
  return {
    ...publicServer,
    requests,
    closed,
    malformed,
    countWaitingForOthers: () => countWaitingForOthers(),
    socket,
    /** Sends the bytes and waits until `count` requests in all have arrived. */
    send: async (bytes: string, count: number) => {
      socket.write(bytes);
      await until(async () => requests.length === count);
    },
    received: () => received,
    ended: once(socket, "end"),
    statuses: () => [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status)),
  };
}

test.each([
  ["alone", ""],
  ["with a CONNECT after it", tunnel],
])("a response that is queued on its connection closes when its client leaves, %s", async (_what, rest) => {
  const { send, socket, closed, requests } = await open();
  await send(get("/1") + get("/2") + get("/3") + rest, 3);
  expect(requests[2]!.response.socket).toBeNull();
  socket.resetAndDestroy();
  await until(async () => closed.length === 3);
  expect(closed.toSorted()).toEqual(["/1", "/2", "/3"]);
});

test.each(invalid)("every request before %s gets its whole answer, then that gets its own", async (_what, bytes) => {
  const { send, socket, requests, received, statuses, ended, malformed } = await open();
  await send(get("/1") + get("/2"), 2);
  const [first, second] = requests.map(({ response }) => response);
  first!.writeHead(200, { "Content-Length": 8_000_002 });
  first!.write("1".repeat(4_000_000));
  await until(async () => received().length > 1_000_000);
  socket.write(bytes);
  await until(async () => malformed.length === 1);
  if (first!.writableNeedDrain) await once(first!, "drain");
  first!.write("1".repeat(4_000_000));
  first!.end("#\n");
  await until(async () => received().endsWith("#\n"));
  second!.end("second");
  await ended;
  expect(received()).toMatch(/#\nHTTP[^#]+second\r?\n?HTTP/);
  expect(statuses()).toEqual([200, 200, bytes === tunnel ? 405 : 400]);
});

test.each(invalid)("%s after the last answer gets an answer of its own", async (_what, bytes) => {
  const { send, socket, requests, statuses, ended } = await open();
  await send(get("/1"), 1);
  requests[0]!.response.end("1");
  await until(async () => statuses().length === 1);
  socket.write(bytes);
  await ended;
  expect(statuses()).toEqual([200, bytes === tunnel ? 405 : 400]);
});

test.each(invalid)(
  "changes in a row before %s are answered in their order, then that is, then the connection ends",
  async (_what, bytes) => {
    const { socket, requests, statuses, received, ended, malformed } = await open();
    socket.write(patch("/1") + patch("/2") + patch("/3") + bytes);
    for (const count of [1, 2, 3]) {
      await until(() => requests.length === count);
      requests[count - 1]!.response.end(`${count}`);
    }
    await ended;
    expect(statuses()).toEqual([200, 200, 200, bytes === tunnel ? 405 : 400]);
    expect(
      received()
        .match(/Connection: \S+/gi)!
        .at(-1),
    ).toMatch(/close/);
    expect(malformed).toHaveLength(1);
  },
);

test.each([
  ["nonsense", "nonsense\r\n\r\n", 400, "invalid_request"],
  ["a CONNECT", tunnel, 405, "method_not_allowed"],
  ["a request without a Host", "GET / HTTP/1.1\r\n\r\n", 400, "invalid_request"],
])(
  "%s is answered with an Error, an id, limits and its length, and ends its connection",
  async (_what, bytes, status, code) => {
    const { socket, received, requests, malformed } = await open();
    socket.write(bytes);
    await until(() => received().endsWith("}") || socket.readableEnded);
    const [head, body] = received().split("\r\n\r\n") as [string, string];
    expect(JSON.parse(body)).toMatchObject({ code });
    const [line, ...fields] = head.split("\r\n");
    expect(line).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(Object.fromEntries(fields.map((field) => field.split(": ")))).toMatchObject({
      "Content-Type": "application/json",
      "Content-Length": `${body.length}`,
      "X-Request-Id": expect.stringMatching(/^[\w.:-]{8,64}$/),
      "X-RateLimit-Limit": "60",
      Connection: "close",
    });
    expect(malformed).toEqual([code]);
    expect(requests).toEqual([]);
  },
);

test("a long answer is not cut short by something invalid after its request, before it has begun", async () => {
  const { send, socket, requests, malformed, statuses, ended } = await open({ keepAliveTimeoutMs: 50 });
  await send(get("/1"), 1);
  socket.write("nonsense\r\n\r\n");
  await until(() => malformed.length === 1);
  const [{ request, response }] = requests as [(typeof requests)[number]];
  expect(request.socket.timeout ?? 0).toBe(0);
  response.end("1");
  await ended;
  expect(statuses()).toEqual([200, 400]);
});

test("an answer that has begun and does not go on is given up after the idle time, when something invalid follows its request", async () => {
  const { send, socket, requests, received, malformed, closed } = await open({ keepAliveTimeoutMs: 50 });
  await send(get("/1"), 1);
  const [{ request, response }] = requests as [(typeof requests)[number]];
  response.write("half");
  await until(() => received().includes("half"));
  socket.write("nonsense\r\n\r\n");
  await until(() => malformed.length === 1);
  expect(request.socket.timeout).toBe(50);
  await until(() => closed.length === 1);
});

test("an invalid body is answered after the requests before it, and its request is not processed", async () => {
  const { send, requests, statuses, ended } = await open();
  await send(`${patch("/1")}PATCH /2 HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n`, 1);
  requests[0]!.response.end("1");
  await ended;
  expect(statuses()).toEqual([200, 400]);
  expect(requests).toHaveLength(1);
});

test("a body that does not arrive in time gets no second answer when its request has one", async () => {
  const { send, requests, statuses, ended, malformed } = await open({ requestTimeoutMs: 100 });
  await send("PATCH / HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\nx", 1);
  requests[0]!.response.writeHead(401, { "Content-Length": 0 }).end();
  await ended;
  expect(statuses()).toEqual([401]);
  expect(malformed).toEqual(["timeout"]);
});

test("a head that does not arrive in time is answered after the response before it, and is not processed when it ends", async () => {
  const { send, socket, requests, statuses, ended, malformed } = await open({ requestTimeoutMs: 100 });
  await send(`${get("/1")}GET /2 HTTP/1.1\r\n`, 1);
  await until(() => malformed.length === 1);
  socket.write("Host: g\r\n\r\n");
  await setImmediate();
  requests[0]!.response.end("1");
  await ended;
  expect(statuses()).toEqual([200, 408]);
  expect(requests).toHaveLength(1);
});

test("an invalid body gets no second answer when its request has one", async () => {
  const { send, socket, requests, statuses, ended } = await open();
  await send("PATCH / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", 1);
  requests[0]!.response.writeHead(413, { "Content-Length": 0 }).end();
  await until(async () => statuses().length === 1);
  socket.write("nonsense\r\n");
  await ended;
  expect(statuses()).toEqual([413]);
});

test("an idle connection gets one more answer after connections are to end, and that one says that it is the last", async () => {
  const { send, socket, requests, received, statuses, ended, endConnections } = await open();
  await send(get("/1"), 1);
  requests[0]!.response.end("1");
  await until(() => statuses().length === 1);
  expect(received()).toMatch(/Connection: keep-alive/);
  endConnections();
  await send(get("/2"), 2);
  socket.write(get("/3"));
  requests[1]!.response.end("2");
  await until(() => received().endsWith("\r\n\r\n2"));
  expect(received().split("\r\n\r\n1").at(-1)).toMatch(/Connection: close/);
  await ended;
  expect(statuses()).toEqual([200, 200]);
  expect(requests).toHaveLength(2);
});

test("a request that follows an answer which promised to keep the connection is answered while connections are to end", async () => {
  const { send, requests, received, ended, endConnections } = await open();
  await send(get("/1"), 1);
  requests[0]!.response.write("1");
  endConnections();
  requests[0]!.response.end();
  await once(requests[0]!.response, "close");
  await send(patch("/2"), 2);
  requests[1]!.response.end("2");
  await ended;
  expect(received().match(/Connection: [a-z-]+/g)).toEqual(["Connection: keep-alive", "Connection: close"]);
});

test("nothing is parsed of what follows the last request of a connection, while its answer is awaited", async () => {
  const { server, send, socket, requests, statuses, ended } = await open();
  await send(get("/1"), 1);
  let parsed = 0;
  server.on("request", () => {
    parsed += 1;
  });
  socket.write("GET /without-host HTTP/1.1\r\n\r\n");
  await until(() => parsed === 1);
  const accepted = requests[0]!.response.socket!;
  const { bytesRead } = accepted;
  const late = get("/late").repeat(10_000);
  socket.write(late);
  await until(() => accepted.bytesRead === bytesRead + late.length);
  expect(parsed).toBeLessThan(5_000);
  requests[0]!.response.end("1");
  await ended;
  expect(statuses()).toEqual([200, 400]);
});

test.each([
  ["of a client that closes the connection after it", "Connection: close\r\n", () => {}],
  ["at a stop", "", (end: () => void) => end()],
])("a body that is no valid HTTP is 400 at once, also %s", async (_what, header, before) => {
  const { send, socket, statuses, malformed, ended, endConnections } = await open();
  before(endConnections);
  await send(`PATCH / HTTP/1.1\r\nHost: g\r\n${header}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n`, 1);
  socket.write("nonsense\r\n");
  await ended;
  expect(statuses()).toEqual([400]);
  expect(malformed).toEqual(["invalid_request"]);
});

test("a request that is on its way at a stop is answered, and that answer is the last", async () => {
  const { server, socket, requests, received, ended, close } = await open();
  socket.write("GET /1 HTTP/1.1\r\nHost: g\r\n");
  const [accepted] = (await once(server, "connection")) as [Socket];
  await until(() => accepted.bytesRead > 0);
  socket.write("\r\n");
  const stopped = close();
  await until(() => requests.length === 1);
  requests[0]!.response.end("1");
  await Promise.all([ended, stopped]);
  expect(received()).toMatch(/^HTTP\/1.1 200 .*Connection: close/s);
});

test("responses that have begun or are over do not count as waiting for the gateway, behind others on a connection too", async () => {
  const { send, requests, countWaitingForOthers } = await open();
  await send(get("/1") + get("/2") + get("/3") + get("/4"), 4);
  expect(countWaitingForOthers()).toBe(0);
  for (const i of [1, 3]) requests[i]!.response.write("begun");
  expect(countWaitingForOthers()).toBe(2);
  const [{ response }] = requests as [(typeof requests)[number]];
  response.end();
  await once(response, "close");
  expect(countWaitingForOthers()).toBe(2);
});

test("a request after the last response of its connection is not processed", async () => {
  const { send, socket, requests, statuses, ended, endConnections } = await open();
  await send(get("/1"), 1);
  endConnections();
  socket.write(get("/2"));
  await setImmediate();
  requests[0]!.response.end("1");
  await ended;
  expect(statuses()).toEqual([200]);
  expect(requests).toHaveLength(1);
});

test("at most 1,000 requests of a connection are open, and it ends after the last answer that was begun", async () => {
  const { send, socket, requests, statuses, received, ended } = await open();
  await send(Array.from({ length: 3_000 }, (_, i) => get(`/${i}`)).join(""), 1_000);
  socket.write(get("/late").repeat(1_000));
  requests.forEach(({ response }, i) => void response.end(`answer ${i}`));
  await ended;
  expect(requests).toHaveLength(1_000);
  expect(statuses()).toEqual(Array(1_000).fill(200));
  expect(received()).toMatch(/Connection: close\r\n(?:[^\r]+\r\n)*\r\nanswer 999$/);
});

test("a connection that always has some requests open may go on for ever", async () => {
  const { send, requests, statuses } = await open();
  await send(get("/").repeat(50), 50);
  for (let sent = 50; sent < 1_500; sent += 50) {
    await send(get("/").repeat(50), sent + 50);
    for (const { response } of requests.slice(sent - 50, sent)) response.end();
  }
  await until(async () => statuses().length === 1_450);
});

test("requests that wait for an earlier one on their connection are bounded, however many their client sends", async () => {
  const { server, socket, requests } = await open();
  let parsed = 0;
  server.on("request", () => void parsed++);
  socket.write(patch("/0"));
  await until(async () => requests.length === 1);
  for (let i = 0; i < 100; i++) {
    socket.write(patch("/more").repeat(1_000));
    await setImmediate();
  }
  const { request, response } = requests[0]!;
  await until(async () => request.socket.bytesRead > 5_000_000);
  expect(parsed).toBeLessThan(4_000); // those of the packet in which it was too many
  socket.resetAndDestroy(); // with all of them open Node would need minutes to forget them
  await once(response, "close");
  expect(requests).toHaveLength(1);
});
