import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { setImmediate } from "node:timers/promises";
import { Router } from "express";
import { startPublicServer } from "../../test/support/public-server.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { until } from "../../test/support/until.ts";

const stack = suiteStack();
const patch = (path: string) => `PATCH ${path} HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\n{}`;
const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: g\r\n\r\n`;
const tunnel = "CONNECT g:1 HTTP/1.1\r\nHost: g\r\n\r\n";
const chunked = "Transfer-Encoding: chunked\r\n\r\n";
const invalid = [
  ["nonsense", "nonsense\r\n\r\n"],
  ["a CONNECT", tunnel],
] as const;

/** Starts a server whose requests the test answers, and a client of it that keeps its side open. */
async function open({ requestTimeoutMs = 60_000, keepAliveTimeoutMs = 60_000, isOverloaded = false } = {}) {
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
        return !isOverloaded;
      },
    },
    headersOutsideRouter: () => ["X-RateLimit-Limit", "60"],
    onMalformed: ({ code }) => malformed.push(code),
  });
  const accepted = once(publicServer.server, "connection") as Promise<[Socket]>;
  const socket: Socket = connect({ port: publicServer.port, host: "127.0.0.1", allowHalfOpen: true });
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
    /** The server's side of the connection. */
    accepted: accepted.then(([side]) => side),
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

test("of pipelined requests one is open, and the next one is parsed when its answer has closed", async () => {
  const { send, socket, requests, closed, received } = await open();
  await send(get("/1") + get("/2") + patch("/3") + get("/4"), 1);
  for (const count of [1, 2, 3, 4]) {
    await until(() => requests.length === count);
    const { request, response } = requests[count - 1]!;
    await until(() => request.socket.bytesRead === socket.bytesWritten);
    expect(requests).toHaveLength(count);
    response.end(`answer ${count}#`);
  }
  await until(() => closed.length === 4);
  expect(received().match(/answer \d(?=#)/g)).toEqual(["answer 1", "answer 2", "answer 3", "answer 4"]);
});

test("requests are told apart wherever the bytes of a connection are cut", async () => {
  const chunked = "POST /2 HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\r\n\r\r\n0\r\nA: b\r\n\r\n";
  const bytes = `\r\n${get("/1")}${chunked}${patch("/3")}${get("/4")}`;
  for (let at = 1; at < bytes.length; at++) {
    const { socket, requests, statuses, accepted } = await open();
    socket.write(bytes.slice(0, at));
    await until(async () => (await accepted).bytesRead === at, { everyMs: 1 });
    socket.write(bytes.slice(at));
    for (const count of [1, 2, 3, 4]) {
      await until(() => requests.length === count, { everyMs: 1 });
      const { request, response } = requests[count - 1]!;
      request.resume();
      if (!request.complete) await once(request, "end");
      expect(requests).toHaveLength(count);
      response.end();
    }
    await until(() => statuses().length === 4, { everyMs: 1 });
    expect(requests.map(({ request }) => request.url)).toEqual(["/1", "/2", "/3", "/4"]);
    socket.destroy();
  }
});

test("an open response closes when its client leaves, whatever that client has sent after it", async () => {
  const { send, socket, closed, requests } = await open();
  await send(get("/1") + get("/more").repeat(5_000), 1);
  socket.resetAndDestroy();
  await until(() => closed.length === 1);
  expect(requests).toHaveLength(1);
});

test.each(invalid)("every request before %s gets its whole answer, then that gets its own", async (_what, bytes) => {
  const { send, socket, requests, received, statuses, ended, malformed } = await open();
  await send(get("/1") + get("/2") + bytes, 1);
  const first = requests[0]!.response;
  first.writeHead(200, { "Content-Length": 4_000_002 });
  first.write("1".repeat(4_000_000));
  await until(async () => received().length > 1_000_000);
  first.end("#\n");
  await until(() => requests.length === 2);
  expect(malformed).toEqual([]);
  requests[1]!.response.end("second");
  await ended;
  expect(received()).toMatch(/#\nHTTP[^#]+second\r?\n?HTTP/);
  expect(statuses()).toEqual([200, 200, bytes === tunnel ? 405 : 400]);
  expect(socket.destroyed).toBe(false);
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
  "changes in a row before %s are answered in order, then that is, then the connection ends",
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
  ["HTTP/2.0", "GET / HTTP/2.0\r\nHost: g\r\n\r\n", 505, "invalid_request"],
  ["HTTP/0.9", "GET /\r\n\r\n", 505, "invalid_request"],
  ["a Host with a path", "GET / HTTP/1.1\r\nHost: a b/c?d\r\n\r\n", 400, "invalid_request"],
  ["a Host with a user", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, "invalid_request"],
  ["a Transfer-Encoding in HTTP/1.0", `POST / HTTP/1.0\r\n${chunked}0\r\n\r\n`, 400, "invalid_request"],
  [
    "a transfer coding other than chunked",
    "POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    501,
    "invalid_request",
  ],
  [
    "a head of 102 lines with a length at its end",
    `POST / HTTP/1.1\r\nHost: g\r\n${"a: b\r\n".repeat(100)}Content-Length: 1\r\n\r\nx`,
    431,
    "payload_too_large",
  ],
  ["a head of 101 lines", `GET / HTTP/1.1\r\nHost: g\r\n${"a: b\r\n".repeat(100)}\r\n`, 431, "payload_too_large"],
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

test.each([
  ["a name", "shop.example:8080"],
  ["an IPv6 address", "[2001:db8::1]:80"],
  ["no text", ""],
])("a Host with %s is taken, and so is a head of 100 lines", async (_what, host) => {
  const { send } = await open();
  await send(`GET / HTTP/1.1\r\nHost: ${host}\r\n${"a: b\r\n".repeat(99)}\r\n`, 1);
});

test("a request behind one that offers an upgrade is answered", async () => {
  const { send, requests, statuses } = await open();
  await send(`GET /1 HTTP/1.1\r\nHost: g\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n${get("/2")}`, 1);
  requests[0]!.response.end("1");
  await until(() => requests.length === 2);
  requests[1]!.response.end("2");
  await until(() => statuses().length === 2);
});

test("an invalid body is answered once, after the requests before it", async () => {
  const { send, requests, statuses, ended } = await open();
  await send(`${patch("/1")}PATCH /2 HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n`, 1);
  requests[0]!.response.end("1");
  await ended;
  expect(statuses()).toEqual([200, 400]);
});

test("an answer that stands still after an invalid body is given up after the idle time", async () => {
  const { send, socket, requests, received, malformed, closed } = await open({ keepAliveTimeoutMs: 50 });
  await send("PATCH /1 HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n", 1);
  const [{ request, response }] = requests as [(typeof requests)[number]];
  response.write("half");
  await until(() => received().includes("half"));
  socket.write("nonsense\r\n\r\n");
  await until(() => malformed.length === 1);
  expect(request.socket.timeout).toBe(50);
  await until(() => closed.length === 1);
});

test("a request whose body does not arrive gets 408, and an answer before that is the last", async () => {
  const head = "PATCH / HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\nx";
  const late = await open({ requestTimeoutMs: 100 });
  await late.send(head, 1);
  await late.ended;
  expect([late.statuses(), late.malformed]).toEqual([[408], ["timeout"]]);

  const early = await open();
  await early.send(head, 1);
  early.requests[0]!.response.writeHead(401, { "Content-Length": 0 }).end();
  await early.ended;
  expect(early.received()).toMatch(/^HTTP\/1.1 401 .*Connection: close/s);
});

test("an answer after the end of a body that came late keeps the connection", async () => {
  const { send, socket, requests, received } = await open();
  await send("PATCH / HTTP/1.1\r\nHost: g\r\nContent-Length: 10\r\n\r\nx", 1);
  const { request, response } = requests[0]!;
  socket.write("123456789");
  await once(request.resume(), "end");
  response.end();
  await until(() => received().endsWith("\r\n\r\n"));
  expect(received()).toMatch(/Connection: keep-alive/);
});

test("a part of a head behind a request is 408 when its rest does not come in time", async () => {
  const { send, requests, statuses, ended } = await open({ requestTimeoutMs: 100 });
  await send(`${get("/1")}GET /2 HTTP/1.1\r\n`, 1);
  requests[0]!.response.end("1");
  await ended;
  expect(statuses()).toEqual([200, 408]);
  expect(requests).toHaveLength(1);
});

test("line breaks in a body are parsed together, however many they are", async () => {
  const { send, socket, requests, statuses } = await open();
  const breaks = `\r\n\r\n${"\n".repeat(60_000)}`;
  await send(`POST /1 HTTP/1.1\r\nHost: g\r\n${chunked}`, 1);
  const [{ request, response }] = requests as [(typeof requests)[number]];
  let pieces = 0;
  request.on("data", () => void pieces++);
  socket.write(`${breaks.length.toString(16)}\r\n${breaks}\r\n0\r\n\r\n${get("/2")}`);
  await once(request, "end");
  expect(pieces).toBeLessThan(20); // some for each packet
  response.end();
  await until(() => requests.length === 2);
  requests[1]!.response.end();
  await until(() => statuses().length === 2);
});

test.each([
  [
    "a chunked body in small pieces that begin with line breaks",
    `${chunked}${"\r\n\r\n1\r\nx".slice(4).concat("\r\n1\r\nx".repeat(300))}\r\n0\r\n\r\n`,
    301,
  ],
  ["line breaks alone", `Content-Length: 6\r\n\r\n\n\n\r\n\r\n`, 6],
  ["line breaks and a letter", `Content-Length: 9\r\n\r\n\r\n\r\n\n\n\n\nx`, 9],
])("a body of %s ends where it ends, and no byte of it is a request", async (_what, rest, length) => {
  const smuggled = "GET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n";
  const next = `POST /2 HTTP/1.1\r\nHost: g\r\nX: 1\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`;
  const bytes = `POST /1 HTTP/1.1\r\nHost: g\r\n${rest}${next}${get("/3")}`;
  for (const at of [bytes.length, bytes.indexOf(rest) + rest.indexOf("\r\n\r\n") + 5, bytes.indexOf("X: 1")]) {
    const { socket, requests, statuses, accepted } = await open();
    socket.write(bytes.slice(0, at));
    await until(async () => (await accepted).bytesRead === at, { everyMs: 1 });
    socket.write(bytes.slice(at));
    const lengths: number[] = [];
    for (const count of [1, 2, 3]) {
      await until(() => requests.length === count, { everyMs: 1 });
      const { request, response } = requests[count - 1]!;
      lengths[count - 1] = 0;
      request.on("data", (chunk) => {
        lengths[count - 1]! += chunk.length;
      });
      if (!request.readableEnded) await once(request, "end");
      expect(requests).toHaveLength(count);
      response.end();
    }
    await until(() => statuses().length === 3, { everyMs: 1 });
    expect(requests.map(({ request }) => request.url)).toEqual(["/1", "/2", "/3"]);
    expect(lengths).toEqual([length, smuggled.length, 0]);
    socket.destroy();
  }
});

test("the line breaks in a body do not count against the next request", async () => {
  const { send, socket, requests, statuses } = await open();
  const body = `${chunked}${(1_900 * 5).toString(16)}\r\n${"\r\n\r\na".repeat(1_900)}\r\n0\r\n\r\n`;
  for (const count of [1, 2]) {
    await send(`POST / HTTP/1.1\r\nHost: g\r\n${body}`, count);
    const { request, response } = requests[count - 1]!;
    await once(request.resume(), "end");
    response.end();
    await until(() => statuses().length === count);
  }
  socket.destroy();
  expect(statuses()).toEqual([200, 200]);
});

test.each([
  ["empty lines", `${(5 * 2_000).toString(16)}\r\n${"\r\n\r\na".repeat(2_000)}`],
  ["chunks", "1\r\nx\r\n".repeat(2_001)],
])("a chunked body of more than 2,000 %s is refused, however many packets it comes in", async (_what, body) => {
  const bytes = `POST /1 HTTP/1.1\r\nHost: g\r\n${chunked}${body}\r\n0\r\n\r\n${get("/2")}`;
  for (const half of [bytes.length, bytes.length / 2]) {
    const { send, socket, requests, statuses, ended } = await open();
    await send(bytes.slice(0, half), 1);
    let pieces = 0;
    requests[0]!.request.on("data", () => void pieces++);
    if (half < bytes.length) await until(() => pieces > 0);
    socket.write(bytes.slice(half));
    await ended;
    expect([statuses(), requests.length]).toEqual([[413], 1]);
    expect(pieces).toBeLessThanOrEqual(2_001);
  }
});

test("a client that has ended its side gets its answers, and 400 for a part of a request", async () => {
  const { socket, requests, statuses, received, ended } = await open();
  socket.end(`${get("/1")}${patch("/2")}GET /3 HT`);
  for (const count of [1, 2]) {
    await until(() => requests.length === count);
    requests[count - 1]!.response.end(`${count}`);
  }
  await ended;
  expect(statuses().filter((status) => status !== 102)).toEqual([200, 200, 400]);

  const one = await open();
  one.socket.end(get("/1"));
  await until(() => one.requests.length === 1);
  await until(() => one.requests[0]!.request.socket.readableEnded);
  one.requests[0]!.response.end("1");
  await one.ended;
  expect(one.received()).toMatch(/HTTP\/1.1 200 .*Connection: close/s);
  expect(received()).toMatch(/HTTP\/1.1 200 .*Connection: keep-alive/s);
});

test("a client that closes its connection is told from one that has ended its side alone", async () => {
  const { socket, requests, closed, port } = await open();
  const left = connect(port, "127.0.0.1").resume();
  left.end(get("/before") + get("/left"));
  await until(() => requests.length === 1);
  requests[0]!.response.end();
  await until(() => requests.length === 2);
  socket.end(get("/ended"));
  await until(() => requests.length === 3);
  left.destroy();
  await until(() => closed.length === 2);
  expect(closed).toEqual(["/before", "/left"]);
});

test("an idle connection gets one more answer after connections are to end, marked as the last", async () => {
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

test("a request after an answer that kept its connection is answered when connections are to end", async () => {
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

test("responses that have begun do not count as waiting for the gateway", async () => {
  const { send, requests, countWaitingForOthers } = await open();
  await send(get("/1"), 1);
  expect(countWaitingForOthers()).toBe(0);
  const [{ response }] = requests as [(typeof requests)[number]];
  response.write("begun");
  expect(countWaitingForOthers()).toBe(1);
  response.end();
  await once(response, "close");
  expect(countWaitingForOthers()).toBe(0);
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

test("what is too much behind a request is dropped, and the last answer before it says so", async () => {
  const { send, socket, requests, statuses, received, ended } = await open();
  await send(get("/0"), 1);
  const { request } = requests[0]!;
  const more = Array.from({ length: 10_000 }, (_, i) => get(`/${i + 1}`)).join("");
  socket.write(more);
  await until(() => request.socket.bytesRead === socket.bytesWritten);
  const keptCount = more.slice(0, 64 * 1024).split("\r\n\r\n").length - 1;
  for (let i = 0; i <= keptCount; i++) {
    await until(() => requests.length === i + 1, { everyMs: 1 });
    requests[i]!.response.end();
  }
  await ended;
  expect(requests.map(({ request: { url } }) => url)).toEqual(Array.from({ length: keptCount + 1 }, (_, i) => `/${i}`));
  expect(statuses()).toEqual(Array(keptCount + 1).fill(200));
  expect(received().match(/Connection: close/g)).toHaveLength(1);
});

test("a request with too many header lines ends its connection in an overload too", async () => {
  const { socket, statuses, ended } = await open({ isOverloaded: true });
  socket.write(get("/1").replace("\r\n\r\n", `\r\n${"A: b\r\n".repeat(100)}\r\n`) + get("/2"));
  await ended;
  expect(statuses()).toEqual([431]);
});
