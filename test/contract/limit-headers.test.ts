import { createServer } from "node:http";
import { listenOn } from "../../runtime/admin.ts";
import { type Answer, expectError, readLimits } from "../support/answers.ts";
import { callApi, sendToApi } from "../support/api.ts";
import type { RequestOptions } from "../support/http.ts";
import { startLocalGateway } from "../support/local-gateway.ts";
import { madeUpKey } from "../support/made-keys.ts";
import { freePort } from "../support/ports.ts";
import { suiteStack } from "../support/stack.ts";
import { type Env, type System, startSystem } from "../support/system.ts";

describe("limit headers", () => {
  const stack = suiteStack();
  const guard = 10_000;
  const docsGuard = 300;
  let system: System;
  let withoutUpstreams: string;
  let afterSunset: string;

  beforeAll(async () => {
    const silent = createServer(() => {});
    const silentAddress = await listenOn(silent, { host: "127.0.0.1", port: 0 });
    stack.defer(() => {
      silent.close();
      silent.closeAllConnections();
    });
    system = await startSystem({
      seed: [{ petId: 1n, quantity: 100, status: "available" }],
      gatewayEnv: {
        ADDRESS_GUARD_PER_MINUTE: `${guard}`,
        BODY_TIMEOUT_MS: "400",
        UPSTREAM_TIMEOUT_MS: "400",
        PETS_UPSTREAM_URL: `http://127.0.0.1:${await freePort()}`,
        ORDERS_UPSTREAM_URL: `http://${silentAddress}`,
      },
    });
    stack.defer(() => system.close());
    const local = async (env: Env) => {
      const gateway = await startLocalGateway({ ...system.gatewayEnv, ...env });
      stack.defer(() => gateway.close());
      return gateway.address;
    };
    withoutUpstreams = await local({ PETS_UPSTREAM_URL: "", ORDERS_UPSTREAM_URL: "" });
    afterSunset = await local({ DEPRECATIONS: "getPet=2020-01-01;2021-01-01;gone" });
  });

  describe("requests with a key", () => {
    type Send = (request: RequestOptions, address?: string) => Promise<Answer>;
    const json = { "content-type": "application/json" };
    const update = (body: string, headers: Record<string, string> = {}) => ({
      method: "PATCH",
      path: "/v1/inventory/1",
      headers: { ...json, ...headers },
      body,
    });
    const cases: [number, string, (send: Send) => Promise<Answer>][] = [
      [200, "the list", (send) => send({ path: "/v1/inventory" })],
      [200, "the head of the list", (send) => send({ method: "HEAD", path: "/v1/inventory" })],
      [200, "an update", (send) => send(update('{"quantity":100}'))],
      [304, "an unchanged list", (send) => send({ path: "/v1/inventory", headers: { "if-none-match": "*" } })],
      [400, "an invalid petId", (send) => send({ ...update('{"quantity":1}'), path: "/v1/inventory/x" })],
      [400, "an undecodable path", (send) => send({ ...update('{"quantity":1}'), path: "/v1/inventory/%zz" })],
      [400, "an invalid body", (send) => send(update("{}"))],
      [404, "an unknown entry", (send) => send({ ...update('{"quantity":1}'), path: "/v1/inventory/2" })],
      [404, "an unknown path", (send) => send({ path: "/v1/nothing" })],
      [405, "an unsupported method", (send) => send({ method: "DELETE", path: "/v1/inventory" })],
      [405, "OPTIONS", (send) => send({ method: "OPTIONS", path: "/v1/inventory" })],
      [408, "a body that stops", (send) => send({ ...update(""), headers: { ...json, "content-length": "9" } })],
      [410, "a retired operation", (send) => send({ path: "/v1/pets/1" }, afterSunset)],
      [412, "a condition that fails", (send) => send(update('{"quantity":1}', { "if-match": '"r0"' }))],
      [413, "a body that is too large", (send) => send(update(" ".repeat(20_000)))],
      [415, "an unsupported media type", (send) => send(update("quantity=1", { "content-type": "text/plain" }))],
      [502, "an upstream that refuses", (send) => send({ path: "/v1/pets/1" })],
      [503, "an operation without an upstream", (send) => send({ path: "/v1/pets/1" }, withoutUpstreams)],
      [504, "an upstream that is silent", (send) => send({ path: "/v1/store/orders" })],
    ];

    test.each(cases)(
      "the answer %d for %s has the limits of its key, which is charged once",
      async (status, _what, run) => {
        const { key } = await system.issueKey({ plan: "pro" });
        const answer = await run(({ method = "GET", path, headers, body }, address = system.address) => {
          const lines = Object.entries({ host: "g", authorization: `Bearer ${key}`, ...headers });
          if (body && headers?.["content-length"] === undefined) lines.push(["content-length", `${body.length}`]);
          const head = [`${method} ${path} HTTP/1.1`, ...lines.map(([name, value]) => `${name}: ${value}`)];
          return sendToApi(address, `${head.join("\r\n")}\r\n\r\n${body ?? ""}`);
        });
        expect(answer.status).toBe(status);
        expect(readLimits(answer)).toMatchObject({
          limit: 300,
          remaining: 299,
          windows: {
            minute: { limit: 300, seconds: 60, remaining: 299, resetSeconds: expect.any(Number) },
            day: { limit: 10_000, seconds: 86_400, remaining: 9_999 },
          },
        });
      },
    );

    test("a 403 for a missing scope and a 429 for an exhausted limit have the limits of their key", async () => {
      const limits = { perMinute: 1, perDay: 5 };
      const { key } = await system.issueKey({ plan: "enterprise", limits, scopes: ["store:read"] });
      const get = () => callApi(system.address, { path: "/v1/inventory", headers: { authorization: `Bearer ${key}` } });
      const forbidden = await get();
      expect(forbidden.status).toBe(403);
      expect(readLimits(forbidden)).toMatchObject({ limit: 1, remaining: 0, windows: { day: { remaining: 4 } } });
      const refused = await get();
      expectError(refused, 429, "rate_limit_exceeded");
      expect(readLimits(refused)).toMatchObject({ limit: 1, remaining: 0, windows: { day: { remaining: 4 } } });
    });
  });

  describe("requests without a valid key", () => {
    const get = (path: string, ...lines: string[]) =>
      [`GET ${path} HTTP/1.1`, "Host: g", ...lines, "\r\n"].join("\r\n");
    const cases: [number, string, string | (() => string)][] = [
      [401, "no key", get("/v1/inventory")],
      [401, "a malformed key", get("/v1/inventory", "Authorization: Bearer nonsense")],
      [401, "an unknown key", () => get("/v1/inventory", `Authorization: Bearer ${madeUpKey()}`)],
      [401, "a page that does not exist", get("/docs/nothing.html")],
      [401, "OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: g\r\n\r\n"],
      [400, "two keys", get("/v1/inventory", "Authorization: Bearer a", "Authorization: Bearer b")],
      [400, "two hosts", get("/v1/inventory", "Host: h")],
      [400, "no host", "GET /v1/inventory HTTP/1.1\r\n\r\n"],
      [400, "no host for the document", "GET /openapi.json HTTP/1.1\r\n\r\n"],
      [200, "the document", get("/openapi.json")],
      [200, "the page", get("/docs/")],
      [200, "a file of the page", get("/docs/page.css")],
      [302, "the redirect to the page", get("/docs")],
      [400, "a malformed request line", "nonsense\r\n\r\n"],
      [400, "an unknown method", "BREW /v1/inventory HTTP/1.1\r\nHost: g\r\n\r\n"],
      [400, "a malformed header", get("/v1/inventory", "no colon")],
      [400, "a folded header", get("/v1/inventory", "X-A: 1", " 2")],
      [400, "a body with two lengths", get("/v1/inventory", "Content-Length: 1", "Content-Length: 2")],
      [400, "a length and chunks", get("/v1/inventory", "Content-Length: 4", "Transfer-Encoding: chunked")],
      [400, "HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
      [400, "TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
      [405, "CONNECT", "CONNECT g:443 HTTP/1.1\r\nHost: g\r\n\r\n"],
      [408, "a head that never ends", "GET /v1/inventory HTTP/1.1\r\nHost: g\r\n"],
      [431, "a head that is too large", get("/v1/inventory", `X-A: ${"a".repeat(17_000)}`)],
    ];
    test.each(cases)("the answer %d for %s has the limit of its address", async (status, _what, bytes) => {
      const answer = await sendToApi(system.address, typeof bytes === "string" ? bytes : bytes());
      expect(answer.status).toBe(status);
      const { limit, windows } = readLimits(answer);
      expect(limit).toBe(status < 400 ? docsGuard : guard);
      expect(windows).toEqual({
        minute: { limit, seconds: 60, remaining: expect.any(Number), resetSeconds: expect.any(Number) },
      });
    });

    test("the answer 304 for the unchanged document has the limit of its address", async () => {
      const { headers } = await callApi(system.address, { path: "/openapi.json" });
      const again = await callApi(system.address, {
        path: "/openapi.json",
        headers: { "if-none-match": String(headers.etag) },
      });
      expect(again.status).toBe(304);
      expect(readLimits(again)).toMatchObject({ limit: docsGuard });
    });
  });
});
