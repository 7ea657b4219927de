import { once } from "node:events";
import { connect } from "node:net";
import {
  anotherKey,
  closeServers,
  get,
  key,
  open,
  startGateway,
  startTcpUpstream,
  startUpstream,
} from "../support/pass-through-gateway.ts";

afterEach(closeServers);

const sentUp = {
  accept: "application/json",
  "accept-encoding": "gzip",
  "accept-language": "de",
  "if-match": '"1"',
  "if-modified-since": "Thu, 26 Nov 2026 07:00:00 GMT",
  "if-none-match": '"2"',
  "if-unmodified-since": "Thu, 26 Nov 2026 08:00:00 GMT",
  prefer: "return=minimal",
  traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
  tracestate: "a=b",
  "user-agent": "test",
};

describe("the request to the upstream", () => {
  test("the upstream gets the headers of the client that decide about a record, and no others", async () => {
    const upstream = await startUpstream((_req, res) => res.end("{}"));
    const gateway = await startGateway({ upstream: upstream.url });
    await get(gateway, "/v1/pets/7", {
      headers: {
        ...sentUp,
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
        "Client-IP": "6.6.6.6",
        "CF-Connecting-IP": "6.6.6.6",
        "X-Cluster-Client-IP": "6.6.6.6",
        "X-Envoy-Upstream-Rq-Timeout-Ms": "1",
        "Remote-User": "root",
        "X-Auth-Request-User": "root",
        "X-Anything": "1",
        Referer: "http://g/",
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
          ...sentUp,
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
      headers: { Connection: "close, X-Account-Id , x-forwarded-for, Prefer", Prefer: "return=minimal" },
    });
    expect(upstream.requests[0]?.headers).toMatchObject({
      "x-account-id": "account-1",
      "x-forwarded-for": "192.0.2.1",
    });
    expect(upstream.requests[0]?.headers).not.toHaveProperty("prefer");
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
      `GET /v1/pets/7?key=${key}&a=1&${encoded}=1&k=${twice}&k=%zz%ff${encoded}&k=${anotherKey} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer ${key}\r\n` +
        `User-Agent: ${key}\r\nPrefer: a="http://x/?k=${encoded}"\r\n` +
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
        "RateLimit-Limit": "theirs",
        "RateLimit-Remaining": "theirs",
        "RateLimit-Reset": "theirs",
        "X-Rate-Limit-Remaining": "theirs",
        "Rate-Limit-Reset": "theirs",
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

  test("a passed answer is for one key, whatever an app around the gateway says to caches", async () => {
    const upstream = await startUpstream((_req, res) => res.setHeader("Vary", "Accept").end("{}"));
    for (const [said, kept] of [
      ["public, max-age=300", "private, no-cache"],
      ["no-store", "no-store"],
    ] as const) {
      const setByApp = { "Cache-Control": said, Vary: "Origin", "X-App": "1" };
      const { headers } = await get(await startGateway({ upstream: upstream.url, setByApp }), "/v1/pets/7");
      const caching = { "cache-control": kept, vary: "Origin, Accept, Authorization" };
      expect(headers).toMatchObject({ ...caching, "x-app": "1" });
    }
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
