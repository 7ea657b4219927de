import { EventEmitter, once } from "node:events";
import {
  Agent,
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  request,
  Server,
  type ServerResponse,
} from "node:http";
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Socket,
  type Server as TcpServer,
} from "node:net";
import type { Readable } from "node:stream";
import express, { type ErrorRequestHandler, type Request } from "express";
import type { Principal } from "../../gateway/accounts/keys/principal.ts";
import { type ApiError, toApiError } from "../../gateway/http/api-error.ts";
import { setContext } from "../../gateway/http/request-context.ts";
import { type PassThroughOptions, passThrough } from "../../gateway/passthrough/handler.ts";
import { until } from "../support/until.ts";

const key = `ps_test_${"0123456789".repeat(4).slice(2)}`;
const anotherKey = `ps_live_${"ABCDEFGHIJ".repeat(4).slice(2)}`;
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

describe("the request to the upstream", () => {
  test("the upstream gets the client's request without anything that concerns the gateway alone", async () => {
    const upstream = await startUpstream((_req, res) => res.end("{}"));
    const gateway = await startGateway({ upstream: upstream.url });
    await get(gateway, "/v1/pets/7", {
      headers: {
        Accept: "application/json",
        "Accept-Encoding": "gzip",
        "If-None-Match": '"1"',
        "User-Agent": "test",
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        Authorization: `Bearer ${key}`,
        Cookie: "a=b",
        "Proxy-Authorization": "Basic x",
        "Keep-Alive": "timeout=9",
        TE: "trailers",
        Forwarded: "for=6.6.6.6",
        "X-Forwarded-For": "6.6.6.6",
        "X-Forwarded-Host": "evil",
        "X-Real-IP": "6.6.6.6",
        "X-Account-Id": "evil",
        "X-Account-Plan": "enterprise",
        X_Account_Id: "evil",
        "X-Request-Id": "evil",
        "X-RateLimit-Limit": "1",
        "X-HTTP-Method": "DELETE",
        "X-HTTP-Method-Override": "DELETE",
        "X-Method-Override": "DELETE",
        "X-Original-URL": "/pets/8",
        "X-Rewrite-URL": "/pets/8",
        "X-API-Key": key,
        "True-Client-IP": "6.6.6.6",
        "X-Client-IP": "6.6.6.6",
        "X-Key-Again": `=${key}`,
        "X-Another": `=${anotherKey}`,
        Range: "bytes=0-1",
        "Content-Type": "application/json",
      },
    });
    expect(upstream.requests).toEqual([
      {
        method: "GET",
        url: "/pets/7",
        headers: {
          host: upstream.url.host,
          connection: "keep-alive",
          accept: "application/json",
          "accept-encoding": "gzip",
          "if-none-match": '"1"',
          "user-agent": "test",
          traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
          "x-request-id": "request-1",
          "x-account-id": "account-1",
          "x-forwarded-for": "192.0.2.1",
        },
      },
    ]);
  });

  test("the upstream gets the gateway's headers that the client's Connection names, and no others", async () => {
    const upstream = await startUpstream((_req, res) => res.end("{}"));
    const gateway = await startGateway({ upstream: upstream.url });
    await get(gateway, "/v1/pets/7", {
      headers: { Connection: "close, X-Account-Id , x-forwarded-for, X-Mine", "X-Mine": "1" },
    });
    expect(upstream.requests[0]?.headers).toMatchObject({
      "x-account-id": "account-1",
      "x-forwarded-for": "192.0.2.1",
    });
    expect(upstream.requests[0]?.headers).not.toHaveProperty("x-mine");
  });

  test("the upstream never gets a key or a body, even with Expect: 100-continue", async () => {
    const upstream = await startTcpUpstream((socket) => {
      socket.on("data", () => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"));
    });
    const gateway = await startGateway({ upstream: upstream.url });
    const client = connect(Number(gateway.url.port), gateway.url.hostname);
    const encoded = key.replace("_", "%5f");
    const twice = key.replaceAll("s", "%2573");
    client.write(
      `GET /v1/pets/7?key=${key}&a=1&${encoded}=1&k=${twice}&k=${anotherKey} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer ${key}\r\n` +
        `X-Copy: ${key}\r\nReferer: http://x/?k=${encoded}\r\n` +
        "Expect: 100-continue\r\nContent-Length: 9\r\nConnection: close\r\n\r\nthe-body!",
    );
    let answer = "";
    client.on("data", (chunk) => {
      answer += chunk;
    });
    await once(client, "end");
    expect(answer).toContain("HTTP/1.1 200 OK");
    const sent = upstream.received();
    expect(sent).toMatch(/^GET \/pets\/7\?a=1 HTTP\/1\.1\r\n/);
    expect(decodeURIComponent(decodeURIComponent(sent))).not.toMatch(/ps_/);
    expect(sent).not.toMatch(/authorization|expect|content-length|transfer-encoding|the-body/i);
  });

  test.each([
    ["", "/v1/pets/7", "/pets/7"],
    ["/", "/v1/pets/7", "/pets/7"],
    ["/api", "/v1/pets/7", "/api/pets/7"],
    ["/api/", "/v1/pets/-9223372036854775808?a=1&b=%2F?&a=2", "/api/pets/-9223372036854775808?a=1&b=%2F?&a=2"],
    ["/a/b", "/v1/store/orders?status=placed", "/a/b/store/orders?status=placed"],
    ["/a", "/v1/PETS/%37/", "/a/pets/7"],
  ])("a passed-through request goes below the base path %j: %s becomes %s", async (base, asked, sent) => {
    const upstream = await startUpstream((_req, res) => res.end("{}"));
    const gateway = await startGateway({ upstream: new URL(base, upstream.url) });
    expect(await get(gateway, asked)).toMatchObject({ status: 200 });
    expect(upstream.requests.map(({ url }) => url)).toEqual([sent]);
  });

  test("a passed-through request can go to an IPv6 address", async () => {
    const upstream = await startUpstream((_req, res) => res.end("{}"), "::1");
    const gateway = await startGateway({ upstream: new URL("/api", upstream.url) });
    expect(await get(gateway, "/v1/pets/7")).toMatchObject({ status: 200 });
    expect(upstream.requests).toMatchObject([{ url: "/api/pets/7", headers: { host: upstream.url.host } }]);
  });

  test("a passed-through HEAD request is a HEAD request to the upstream", async () => {
    const upstream = await startUpstream((_req, res) => res.setHeader("Content-Length", 1234).end());
    const gateway = await startGateway({ upstream: upstream.url });
    const response = await get(gateway, "/v1/pets/7", { method: "HEAD" });
    expect(response).toMatchObject({ status: 200, body: "", complete: true, headers: { "content-length": "1234" } });
    expect(upstream.requests).toMatchObject([{ method: "HEAD" }]);
  });
});

describe("the response of the upstream", () => {
  test("the client gets the upstream's response with the gateway's own headers", async () => {
    const upstream = await startUpstream((_req, res) => {
      res.writeHead(200, {
        "Content-Type": "application/json",
        "Content-Encoding": "identity",
        ETag: '"7"',
        "Cache-Control": "max-age=5",
        Vary: ["Accept", "Accept-Encoding"],
        "X-RateLimit-Limit": "1",
        "X-RateLimit-Other": "1",
        RateLimit: "theirs",
        "X-Content-Type-Options": "theirs",
        "X-Request-Id": "theirs",
        Deprecation: "@1",
        Sunset: "theirs",
        Link: "<theirs>",
        "Retry-After": "1",
        Server: "theirs",
        "X-Powered-By": "theirs",
        "Set-Cookie": ["a=b", "c=d"],
        "WWW-Authenticate": "Basic",
        "Proxy-Authenticate": "Basic",
        "Alt-Svc": "theirs",
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Expose-Headers": "ETag",
        "Clear-Site-Data": '"*"',
        NEL: "{}",
        "Report-To": "{}",
        "Reporting-Endpoints": 'main="https://upstream.example/"',
        "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
        Connection: "keep-alive, X-Hop",
        "X-Hop": "theirs",
      });
      res.end('{"id":7}');
    });
    const gateway = await startGateway({ upstream: upstream.url });
    const { status, headers, body } = await get(gateway, "/v1/pets/7");
    expect({ status, body }).toEqual({ status: 200, body: '{"id":7}' });
    const { date, ...others } = headers;
    expect(date).toBeDefined();
    expect(others).toEqual({
      "content-type": "application/json",
      "content-encoding": "identity",
      etag: '"7"',
      "cache-control": "private, max-age=5",
      vary: "Accept, Accept-Encoding, Authorization",
      "x-ratelimit-limit": "60",
      ratelimit: "ours",
      "x-content-type-options": "ours",
      "x-request-id": "request-1",
      link: "<ours>",
      connection: "close",
      "transfer-encoding": "chunked",
    });
  });

  test.each([
    [undefined, "private, no-cache"],
    ["", "private, no-cache"],
    ["public", "private, no-cache"],
    ["public, max-age=60", "private, max-age=60"],
    ["Max-Age=60 ,S-MAXAGE=600,proxy-revalidate", "private, Max-Age=60"],
    ["must-revalidate, no-transform, immutable", "private, must-revalidate, no-transform, immutable, no-cache"],
    ["no-store", "private, no-store"],
    [
      'no-cache="Set-Cookie, public", private="ETag, public", max-age="5"',
      'private, no-cache="Set-Cookie, public", max-age="5"',
    ],
    ['no-cache="ETag"', 'private, no-cache="ETag", no-cache'],
    ['x="public, max-age=1", public="', "private, no-cache"],
    ['x y="a, max-age=1, b", z=", max-age=1, ', "private, no-cache"],
    ["ext=a/x.max-age=100, max-age = 60, max-age=, max-age=5=6, ext:immutable, a max-age=1", "private, no-cache"],
    ["max-age=soon", "private, max-age=soon, no-cache"],
  ])("no shared cache may keep a passed answer: Cache-Control %j becomes %j", async (theirs, ours) => {
    const upstream = await startUpstream((_req, res) => {
      if (theirs !== undefined) res.setHeader("Cache-Control", theirs);
      res.end("{}");
    });
    const gateway = await startGateway({ upstream: upstream.url });
    expect((await get(gateway, "/v1/pets/7")).headers["cache-control"]).toBe(ours);
  });

  test.each([
    [undefined, "Authorization"],
    ["Accept", "Accept, Authorization"],
    ["Accept, authorization", "Accept, authorization"],
    ["*", "*"],
    ["X-Authorization", "X-Authorization, Authorization"],
  ])("a passed answer is for one key in the caller's own cache too: Vary %j becomes %j", async (theirs, ours) => {
    const upstream = await startUpstream((_req, res) => {
      if (theirs !== undefined) res.setHeader("Vary", theirs);
      res.end("{}");
    });
    const gateway = await startGateway({ upstream: upstream.url });
    expect((await get(gateway, "/v1/pets/7")).headers.vary).toBe(ours);
  });

  test("the client gets no header that instructs a proxy, or its browser for the whole origin", async () => {
    const names =
      "CDN-Cache-Control Cloudflare-CDN-Cache-Control Surrogate-Control Surrogate-Key Edge-Control Edge-Cache-Tag Cache-Tag " +
      "X-Accel-Redirect X-Accel-Expires X-Accel-Buffering X-Sendfile X-LIGHTTPD-send-file X-Reproxy-URL Refresh Expires Pragma " +
      "X-Sendfile-Type X-Envoy-Upstream-Service-Time XKey Cache-Tags X-Cache-Tags X-LiteSpeed-Cache-Control X-LiteSpeed-Tag " +
      "Netlify-CDN-Cache-Control Netlify-Vary Vercel-CDN-Cache-Control X-Cache-Control No-Vary-Search Use-As-Dictionary " +
      "Accept-CH Service-Worker-Allowed Origin-Trial Public-Key-Pins Public-Key-Pins-Report-Only Expect-CT Set-Login Set-Cookie2";
    const upstream = await startUpstream((_req, res) => {
      for (const name of names.split(" ")) res.setHeader(name, "theirs");
      res.end("{}");
    });
    const gateway = await startGateway({ upstream: upstream.url });
    const { status, headers } = await get(gateway, "/v1/pets/7");
    expect(status).toBe(200);
    expect(Object.values(headers)).not.toContain("theirs");
  });

  test("the client gets a 304 for the upstream's 304", async () => {
    const upstream = await startUpstream((_req, res) => res.writeHead(304, { ETag: '"7"' }).end());
    const gateway = await startGateway({ upstream: upstream.url });
    const response = await get(gateway, "/v1/pets/7", { headers: { "If-None-Match": '"7"' } });
    expect(response).toMatchObject({ status: 304, body: "", headers: { etag: '"7"', "x-ratelimit-limit": "60" } });
  });

  test.each([
    [400, 400, "invalid_request"],
    [404, 404, "not_found"],
    [412, 412, "precondition_failed"],
    [422, 400, "invalid_request"],
    [429, 503, "service_unavailable"],
    [504, 504, "upstream_timeout"],
    [301, 502, "upstream_unavailable"],
    [401, 502, "upstream_unavailable"],
    [403, 502, "upstream_unavailable"],
    [407, 502, "upstream_unavailable"],
    [418, 502, "upstream_unavailable"],
    [500, 502, "upstream_unavailable"],
    [503, 502, "upstream_unavailable"],
    [999, 502, "upstream_unavailable"],
  ])("the client gets the contract's Error for the upstream's status %i: %i %s", async (theirs, ours, code) => {
    const upstream = await startUpstream((_req, res) =>
      res.writeHead(theirs, { "Content-Type": "text/html", ETag: '"e"', Location: "http://inside/" }).end("<p>secret"),
    );
    const gateway = await startGateway({ upstream: upstream.url });
    const { status, headers, body } = await get(gateway, "/v1/pets/7");
    expect({ status, ...JSON.parse(body) }).toEqual({ status: ours, code, message: expect.any(String) });
    expect(headers).toMatchObject({ "content-type": "application/json", "x-ratelimit-limit": "60" });
    expect(headers).not.toHaveProperty("etag");
    expect(headers).not.toHaveProperty("location");
    expect(body).not.toContain("secret");
    expect(gateway.errors[0]?.cause).toEqual(new Error(`pets answered with status ${theirs}`));
  });

  test("the client gets a complete response even when it is slower than the upstream", async () => {
    const piece = Buffer.alloc(1 << 20, "x");
    const pieces = 64;
    const upstream = await startUpstream(async (_req, res) => {
      for (let sent = 0; sent < pieces; sent++) if (!res.write(piece)) await once(res, "drain");
      res.end();
    });
    const gateway = await startGateway({ upstream: upstream.url });
    const response = await open(gateway, "/v1/store/orders");
    let bytes = 0;
    for await (const chunk of response) {
      bytes += chunk.length;
      if (bytes % 64 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(bytes).toBe(pieces * piece.length);
  });
});

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

describe("connections to the upstream", () => {
  test("are used again, even after error responses", async () => {
    const upstream = await startUpstream((_req, res) => res.writeHead(404).end("x".repeat(100_000)));
    const gateway = await startGateway({ upstream: upstream.url });
    for (let count = 0; count < 5; count++) expect(await get(gateway, "/v1/pets/7")).toMatchObject({ status: 404 });
    expect(upstream.connections()).toBe(1);
  });

  test("a connection is closed when an error's body does not end, once the client has its answer", async () => {
    const upstream = await startTcpUpstream((socket) =>
      socket.once("data", () => socket.write("HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n1")),
    );
    const gateway = await startGateway({ upstream: upstream.url, timeoutMs: 100 });
    expect(await getError(gateway)).toEqual({ status: 404, code: "not_found" });
    expect(upstream.open().size).toBe(1);
    await upstream.allClosed();
  });

  test("a connection is closed when the client disconnects before the response head", async () => {
    const upstream = await startUpstream(() => {});
    const gateway = await startGateway({ upstream: upstream.url });
    const arrived = once(upstream.server, "request");
    const client = request(new URL("/v1/pets/7", gateway.url), { agent: false }).on("error", () => {});
    client.end();
    const [req] = (await arrived) as [IncomingMessage];
    client.destroy();
    await closed(req.socket);
    expect(gateway.errors).toEqual([]);
  });

  test("no connection to the upstream is opened for a client that has disconnected already", async () => {
    const upstream = await startUpstream((_req, res) => res.end("{}"));
    const gateway = await startGateway({ upstream: upstream.url });
    const client = request(new URL("/v1/pets/7", gateway.url), { agent: false, headers: { "X-Hold": "1" } });
    client.on("error", () => {}).end();
    const { end } = await gateway.arrived("/v1/pets/7");
    client.destroy();
    await end;
    expect(await get(gateway, "/v1/pets/8")).toMatchObject({ status: 200 });
    expect(upstream.requests.map(({ url }) => url)).toEqual(["/pets/8"]);
    expect(gateway.errors).toEqual([]);
  });

  test("a connection is closed when the client disconnects in the middle of the body", async () => {
    const upstream = await startUpstream((_req, res) => void res.write("1"));
    const gateway = await startGateway({ upstream: upstream.url });
    const arrived = once(upstream.server, "request");
    const response = await open(gateway, "/v1/pets/7");
    const [req] = (await arrived) as [IncomingMessage];
    response.on("error", () => {}).destroy();
    await closed(req.socket);
    expect(gateway.errors).toEqual([]);
  });

  test.each([
    ["nothing", 0],
    ["a byte now and then", 1],
  ])("a connection is closed when a client reads %s, and no body piles up in memory", async (_what, bytes) => {
    const piece = Buffer.alloc(1 << 20, "x");
    let accepted = 0;
    const upstream = await startUpstream((_req, res) => {
      const fill = () => {
        while (accepted < 1_024 && !res.destroyed) {
          accepted += 1;
          if (!res.write(piece)) break;
        }
      };
      res.on("drain", fill);
      fill();
    });
    const gateway = await startGateway({ upstream: upstream.url, clientTimeoutMs: 1_000 });
    const arrived = once(upstream.server, "request");
    const response = await open(gateway, "/v1/store/orders");
    response.on("error", () => {});
    const reading = setInterval(() => response.read(bytes), 100);
    const [req] = (await arrived) as [IncomingMessage];
    await closed(req.socket);
    clearInterval(reading);
    // The kernel buffers this much for four sockets on loopback. Without backpressure it would be all of the body.
    expect(accepted).toBeLessThan(64);
    await closed(response.resume());
    expect(response.complete).toBe(false);
  });

  test("an account has at most half of the connections that others leave, and then gets 503", async () => {
    const held = new Map<string | undefined, () => void>();
    const upstream = await startUpstream((req, res) => void held.set(req.url, () => res.end("{}")));
    const gateway = await startGateway({ upstream: upstream.url, maxConnections: 4 });
    const hold = (path: string, account: string) => {
      const answer = get(gateway, path, { headers: { "X-Account": account } });
      answer.catch(() => {}); // if this test fails, it must not end the whole run
      return answer;
    };
    const answers = [hold("/v1/pets/1", "a"), hold("/v1/pets/2", "a")];
    await until(() => held.size === 2);
    const refused = await get(gateway, "/v1/pets/3", { headers: { "X-Account": "a" } });
    expect([refused.status, JSON.parse(refused.body).code]).toEqual([503, "service_unavailable"]);
    answers.push(hold("/v1/pets/4", "b"), hold("/v1/pets/5", "c"));
    await until(() => held.size === 4);
    for (const end of held.values()) end();
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect(upstream.connections()).toBe(4);
  });

  const ends: [
    string,
    (gateway: Gateway) => Promise<unknown>,
    (req: IncomingMessage, res: ServerResponse) => unknown,
  ][] = [
    ["an answer", (gateway) => get(gateway, "/v1/pets/1"), (_req, res) => res.end("{}")],
    ["a refusal", (gateway) => get(gateway, "/v1/pets/1"), (_req, res) => res.writeHead(404).end("none")],
    ["a refusal that breaks off", (gateway) => get(gateway, "/v1/pets/1"), breakOff(404)],
    ["an answer that breaks off", (gateway) => get(gateway, "/v1/pets/1"), breakOff(200)],
    ["a reset", (gateway) => get(gateway, "/v1/pets/1"), (req) => req.socket.resetAndDestroy()],
    ["the end of the time", (gateway) => get(gateway, "/v1/pets/1"), () => {}],
    ["a client that leaves", (gateway) => leave(gateway), (_req, res) => void res.write("1")],
  ];
  test.each(ends)("a connection to the upstream can be had again after %s", async (_what, use, answer) => {
    let requests = 0;
    const upstream = await startUpstream((req, res) => (requests++ < 3 ? answer(req, res) : res.end("{}")));
    const gateway = await startGateway({ upstream: upstream.url, maxConnections: 1, timeoutMs: 300 });
    for (let count = 0; count < 3; count++) {
      await until(async () => {
        const before = requests;
        await use(gateway);
        return requests > before; // else its connection was still in use
      });
    }
    await until(async () => (await get(gateway, "/v1/pets/2")).status === 200);
  });
});

/** Sends the head and a part of the body, and breaks off. */
function breakOff(status: number) {
  return (req: IncomingMessage, res: ServerResponse) =>
    res.writeHead(status, { "Content-Length": 9 }).write("1", () => req.socket.destroy());
}

/** Takes the head of an answer, and disconnects. */
async function leave(gateway: Gateway): Promise<void> {
  const response = await open(gateway, "/v1/pets/1");
  response.on("error", () => {}).destroy();
}

async function startUpstream(answer: (req: IncomingMessage, res: ServerResponse) => unknown, host = "127.0.0.1") {
  const requests: Pick<IncomingMessage, "method" | "url" | "headers">[] = [];
  let connections = 0;
  const server = createServer((req, res) => {
    requests.push({ method: req.method, url: req.url, headers: req.headers });
    answer(req, res);
  });
  server.on("connection", () => {
    connections += 1;
  });
  const url = await listen(server, host);
  return { url, server, requests, connections: () => connections };
}

/** Starts an upstream that answers at the level of TCP. */
async function startTcpUpstream(onConnection: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  let received = "";
  let connections = 0;
  const server = createTcpServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("data", (chunk) => {
      received += chunk.toString("latin1");
    });
    onConnection(socket);
  });
  const url = await listen(server, "127.0.0.1", () => {
    for (const socket of sockets) socket.destroy();
  });
  const allClosed = async () => {
    for (const socket of sockets) await closed(socket);
  };
  return { url, received: () => received, connections: () => connections, open: () => sockets, allClosed };
}

/** Starts the pass-through handlers between the request context and the error writer that a gateway gives them. */
async function startGateway(options: Partial<PassThroughOptions>) {
  const errors: ApiError[] = [];
  const arrivals = new EventEmitter();
  const writeError: ErrorRequestHandler = (thrown, _req, res, _next) => {
    const error = toApiError(thrown);
    errors.push(error);
    if (res.headersSent) return;
    res.setHeader("Content-Type", "application/json");
    res.status(error.status).end(error.body);
  };
  const handler = (name: string, path: (parameters: Request["params"]) => string) =>
    passThrough({ upstream: null, timeoutMs: 10_000, clientTimeoutMs: 30_000, ...options, name })(path);
  const router = express
    .Router()
    .use((req, res, next) => {
      setContext(res, {
        requestId: "request-1",
        clientAddress: "192.0.2.1",
        arrivedMs: performance.now(),
        route: "unknown",
        limitHeaders: [],
        shownWindows: [],
        deprecation: [],
        principal: { ...principal, accountId: String(req.headers["x-account"] ?? principal.accountId) },
        token: key,
        isIdle: false,
        isHurried: false,
        onHurry: undefined,
        prefetched: undefined,
      });
      res.setHeader("X-Request-Id", "request-1").setHeader("X-RateLimit-Limit", "60").setHeader("RateLimit", "ours");
      res.setHeader("Link", "<ours>").setHeader("X-Content-Type-Options", "ours");
      arrivals.emit(req.originalUrl, once(res, "close"));
      // Holds the request like an authentication that takes longer than the client waits.
      if ("x-hold" in req.headers) res.once("close", next);
      else next();
    })
    .get(
      "/pets/:petId",
      handler("pets", ({ petId }) => `/pets/${petId}`),
    )
    .get(
      "/store/orders",
      handler("orders", () => "/store/orders"),
    );
  const server = createServer(express().disable("x-powered-by").use("/v1", router).use(writeError));
  const url = await listen(server, "127.0.0.1");
  /** Resolves when a request has arrived, with a promise of its end. */
  const arrived = async (path: string) => ({ end: (await once(arrivals, path))[0] as Promise<unknown> });
  return { url, errors, arrived };
}

type Gateway = Awaited<ReturnType<typeof startGateway>>;

const principal: Principal = {
  keyId: "key-1",
  familyId: "key-1",
  accountId: "account-1",
  plan: "free",
  limits: null,
  scopes: new Set(["store:read"]),
  expiresAtMs: null,
  bannedUntilMs: 0,
};

async function listen(server: Server | TcpServer, host: string, endConnections?: () => void): Promise<URL> {
  server.listen(0, host);
  await once(server, "listening");
  closing.push(async () => {
    server.close();
    if (server instanceof Server) server.closeAllConnections();
    endConnections?.();
    if (server.listening) await once(server, "close");
  });
  return new URL(`http://${host.includes(":") ? `[${host}]` : host}:${(server.address() as AddressInfo).port}`);
}

/** Resolves when a stream is closed. `once` would reject at an error before that. */
function closed(stream: Readable): Promise<void> {
  return new Promise((resolve) => void stream.once("close", resolve));
}

interface Asked {
  agent?: Agent;
  method?: string;
  headers?: OutgoingHttpHeaders;
}

/** Resolves to the response once its head has arrived. */
async function open(gateway: Gateway, path: string, asked: Asked = {}): Promise<IncomingMessage> {
  const sent = request(new URL(path, gateway.url), { agent: false, ...asked });
  sent.on("error", () => {}).end();
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return response;
}

/** Resolves to the response with its body, or the part of it that arrived. */
async function get(gateway: Gateway, path: string, asked?: Asked) {
  const response = await open(gateway, path, asked);
  let body = "";
  try {
    for await (const chunk of response) body += chunk;
  } catch {
    // It broke off: `complete` says so.
  }
  return { status: response.statusCode, headers: response.headers, body, complete: response.complete };
}

async function getError(gateway: Gateway, path = "/v1/pets/7") {
  const { status, body, headers } = await get(gateway, path);
  const { code, ...rest } = JSON.parse(body);
  expect(rest).toEqual({ status, message: expect.any(String) });
  expect(headers["x-ratelimit-limit"]).toBe("60");
  return { status, code };
}
