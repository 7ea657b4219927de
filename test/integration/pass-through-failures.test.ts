import dns from "node:dns";
import { once } from "node:events";
import { Agent } from "node:http";
import type { Socket } from "node:net";
import {
  closeServers,
  get,
  getError,
  open,
  startGateway,
  startTcpUpstream,
  startUpstream,
} from "../support/pass-through-gateway.ts";
import { until } from "../support/until.ts";

const { jest } = import.meta;

afterEach(closeServers);

describe("failures of the upstream", () => {
  test("a passed-through operation is 503 when no upstream is configured", async () => {
    const gateway = await startGateway({ upstream: null });
    expect(await getError(gateway)).toEqual({ status: 503, code: "service_unavailable" });
  });

  test("a passed-through operation is 502 when the upstream refuses the connection", async () => {
    const upstream = await startUpstream(() => {});
    await new Promise((resolve) => upstream.server.close(resolve));
    const gateway = await startGateway({ upstream: upstream.url });
    expect(await getError(gateway)).toEqual({ status: 502, code: "upstream_unavailable" });
    expect(gateway.errors[0]?.cause).toMatchObject({ code: "ECONNREFUSED" });
  });

  test("all wait for one look-up while the name service is silent, and then get 502 at once", async () => {
    const upstream = await startUpstream((_req, res) => res.end("{}"));
    const { port } = new URL(upstream.url);
    const gateway = await startGateway({ upstream: new URL(`http://pets.example:${port}`), timeoutMs: 300 });
    const lookUps: ((error: null, addresses: dns.LookupAddress[]) => void)[] = [];
    const lookup = (_name: string, _options: object, answer: (typeof lookUps)[0]) => void lookUps.push(answer);
    const spy = jest.spyOn(dns, "lookup").mockImplementation(lookup as never);
    try {
      const first = await Promise.all(Array.from({ length: 5 }, () => getError(gateway)));
      expect(first).toEqual(first.map(() => ({ status: 504, code: "upstream_timeout" })));
      expect(await getError(gateway)).toEqual({ status: 502, code: "upstream_unavailable" });
      expect(gateway.errors.at(-1)!.cause).toMatchObject({ message: expect.stringContaining("name service") });
      expect(lookUps).toHaveLength(1);
      lookUps[0]!(null, [{ address: "127.0.0.1", family: 4 }]);
      const answered = get(gateway, "/v1/pets/7");
      await until(() => lookUps.length === 2);
      lookUps[1]!(null, [{ address: "127.0.0.1", family: 4 }]);
      expect(await answered).toMatchObject({ status: 200 });
    } finally {
      spy.mockRestore();
    }
  });

  test.each([
    ["resets the connection", (socket: Socket) => socket.resetAndDestroy()],
    ["closes the connection", (socket: Socket) => socket.end()],
    ["speaks another protocol", (socket: Socket) => socket.end("220 smtp ready\r\n")],
    ["breaks off inside its head", (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\nContent-")],
    ["sends an invalid header", (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\nX-A: \x7f\x01\r\n\r\n")],
    [
      "switches protocols",
      (socket: Socket) => socket.end("HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
    ],
    ["breaks off before its body", (socket: Socket) => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")],
  ])("a passed-through operation is 502 when the upstream %s", async (_what, answer) => {
    const upstream = await startTcpUpstream((socket) => socket.once("data", () => answer(socket)));
    const gateway = await startGateway({ upstream: upstream.url });
    const response = await get(gateway, "/v1/pets/7");
    expect(response).toMatchObject({ status: 502, complete: true, headers: { "x-ratelimit-limit": "60" } });
    expect(JSON.parse(response.body)).toMatchObject({ code: "upstream_unavailable", status: 502 });
    expect(upstream.connections()).toBe(1);
    expect(gateway.errors).toHaveLength(1);
    expect(gateway.errors[0]?.cause).toMatchObject({ message: expect.any(String) });
  });

  test("an upstream failure leaves the connection of the client open", async () => {
    const upstream = await startTcpUpstream((socket) =>
      socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")),
    );
    const gateway = await startGateway({ upstream: upstream.url });
    const agent = new Agent({ keepAlive: true });
    const connections = new Set<unknown>();
    for (let count = 0; count < 3; count++) {
      const response = await open(gateway, "/v1/pets/7", { agent });
      connections.add(response.socket);
      expect(response.statusCode).toBe(502);
      await once(response.resume(), "end");
      // The agent takes the connection back right after the end.
      await new Promise((resolve) => setImmediate(resolve));
    }
    agent.destroy();
    expect(connections.size).toBe(1);
  });

  test.each([
    ["no head", ""],
    ["only half a head", "HTTP/1.1 200 OK\r\nContent-"],
    ["only a head", "HTTP/1.1 200 OK\r\nETag: 1\r\nContent-Length: 5\r\n\r\n"],
  ])("the answer is 504 when the upstream sends %s in time, and its connection is closed", async (_what, answer) => {
    const upstream = await startTcpUpstream((socket) => socket.once("data", () => socket.write(answer)));
    const gateway = await startGateway({ upstream: upstream.url, timeoutMs: 100 });
    const response = await get(gateway, "/v1/pets/7");
    expect(response).toMatchObject({ status: 504, complete: true });
    expect(response.headers).not.toHaveProperty("etag");
    expect(JSON.parse(response.body)).toMatchObject({ code: "upstream_timeout" });
    await upstream.allClosed();
  });

  test("a body that keeps coming for longer than the timeout is not taken for an upstream failure", async () => {
    const upstream = await startUpstream(async (_req, res) => {
      for (let piece = 0; piece < 6; piece++) {
        res.write("x");
        await new Promise((resolve) => setTimeout(resolve, 60));
      }
      res.end();
    });
    const gateway = await startGateway({ upstream: upstream.url, timeoutMs: 200 });
    expect(await get(gateway, "/v1/pets/7")).toMatchObject({ status: 200, body: "xxxxxx", complete: true });
  });

  test.each([
    ["breaks off before its Content-Length", "Content-Length: 10\r\n\r\n12345", true],
    ["breaks off before its last chunk", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", true],
    ["stalls before its Content-Length", "Content-Length: 10\r\n\r\n12345", false],
    ["stalls before its last chunk", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", false],
  ])("an upstream body that %s never looks complete", async (_what, answer, breaks) => {
    const upstream = await startTcpUpstream((socket) =>
      socket.once("data", () => {
        socket.write(`HTTP/1.1 200 OK\r\n${answer}`);
        if (breaks) socket.end();
      }),
    );
    const gateway = await startGateway({ upstream: upstream.url, timeoutMs: breaks ? 10_000 : 100 });
    expect(await get(gateway, "/v1/pets/7")).toMatchObject({ status: 200, body: "12345", complete: false });
    await upstream.allClosed();
    expect(gateway.errors.map(({ code }) => code)).toEqual([breaks ? "upstream_unavailable" : "upstream_timeout"]);
  });

  test("a failure is hidden when the upstream closes an idle connection just as a request goes out", async () => {
    const upstream = await startTcpUpstream((socket) => {
      socket.once("data", () => {
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        socket.once("data", () => socket.resetAndDestroy());
      });
    });
    const gateway = await startGateway({ upstream: upstream.url, maxConnections: 1 });
    for (let count = 0; count < 3; count++) expect(await get(gateway, "/v1/pets/7")).toMatchObject({ status: 200 });
    expect(upstream.connections()).toBe(3);
  });

  test("an upstream failure leads to at most one retry of a request", async () => {
    let requests = 0;
    const upstream = await startTcpUpstream((socket) => {
      socket.on("data", () => {
        requests += 1;
        // The first two wait for each other, so that there are two connections.
        if (requests > 2) socket.resetAndDestroy();
        if (requests === 2)
          for (const each of upstream.open()) each.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
      });
    });
    const gateway = await startGateway({ upstream: upstream.url });
    await Promise.all([get(gateway, "/v1/pets/7"), get(gateway, "/v1/pets/7")]);
    expect(await getError(gateway)).toEqual({ status: 502, code: "upstream_unavailable" });
    expect(requests).toBe(4);
  });
});
