import { createKey } from "../../gateway/accounts/keys/key-format.ts";
import { type Scope, scopes } from "../../gateway/accounts/keys/principal.ts";
import { expectError, header, readLimits } from "../support/answers.ts";
import { callApi, sendToApi } from "../support/api.ts";
import type { Response } from "../support/http.ts";
import { passTimeAt } from "../support/key-stores.ts";
import { startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { madeUpKey, testPepper } from "../support/made-keys.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem, type TestKey } from "../support/system.ts";

const plainChallenge = 'Bearer realm="petstore"';
const tokenChallenge = 'Bearer realm="petstore", error="invalid_token"';

describe("the API key", () => {
  const stack = suiteStack();
  let system: System;
  let key: string;

  beforeAll(async () => {
    // Every request without a key comes from the same address here.
    system = await startSystem({
      seed: [{ petId: 1n, quantity: 100, status: "available" }],
      gatewayEnv: { ADDRESS_GUARD_PER_MINUTE: "1000000" },
    });
    stack.defer(() => system.close());
    key = system.keys.enterprise;
  });

  const get = (headers: Record<string, string>, path = "/v1/inventory") => callApi(system.address, { path, headers });
  const withKey = (token: string, path?: string) => get({ authorization: `Bearer ${token}` }, path);

  test.each(["Bearer", "bearer", "BEARER", "bEARER"])("is accepted with the scheme written as %s", async (scheme) => {
    expect(await get({ authorization: `${scheme} ${key}` })).toMatchObject({ status: 200 });
    expect(await get({ authorization: `${scheme}   ${key}  ` })).toMatchObject({ status: 200 });
  });

  test.each<[string, () => Record<string, string>]>([
    ["no Authorization", () => ({})],
    ["an empty Authorization", () => ({ authorization: "" })],
    ["the scheme alone", () => ({ authorization: "Bearer" })],
    ["the scheme and spaces", () => ({ authorization: "Bearer   " })],
    ["the key alone", () => ({ authorization: key })],
    ["another scheme", () => ({ authorization: `Basic ${Buffer.from(`${key}:`).toString("base64")}` })],
    ["a scheme that begins alike", () => ({ authorization: `Bearers ${key}` })],
    ["no space after the scheme", () => ({ authorization: `Bearer${key}` })],
    ["the key in another header", () => ({ "x-api-key": key, "proxy-authorization": `Bearer ${key}`, cookie: key })],
  ])("counts as missing in a request with %s", async (_what, headers) => {
    const response = await get(headers());
    expectError(response, 401, "missing_api_key");
    expect(header(response, "WWW-Authenticate")).toBe(plainChallenge);
  });

  test("a missing API key gets an answer that names the documentation, at / too", async () => {
    const said = /The Link header leads to the documentation/;
    for (const path of ["/", "/v1/inventory"]) expectError(await get({}, path), 401, "missing_api_key", said);
  });

  test("counts as missing when it is only in the query", async () => {
    const response = await get({}, `/v1/inventory?access_token=${key}&api_key=${key}`);
    expectError(response, 401, "missing_api_key");
  });

  describe("refusals", () => {
    const invalid: Record<string, () => Promise<string>> = {
      "it was made up": async () => madeUpKey(),
      "it was never issued": async () => createKey("test", testPepper),
      "it was revoked": async () => {
        const issued = await system.issueKey();
        expect(await system.runKeys("revoke", issued.keyId)).toMatchObject({ code: 0 });
        return issued.key;
      },
      "it has expired": async () => (await system.issueKey({ expiresAtMs: Date.now() - 1 })).key,
      "it has a typo": async () => key.slice(0, -1) + (key.endsWith("x") ? "y" : "x"),
      "it is cut short": async () => key.slice(0, -1),
      "it is followed by another": async () => `${key} ${key}`,
      "it is in capitals": async () => key.toUpperCase(),
      "it is 8 KB long": async () => `ps_test_${"k".repeat(8 * 1024)}`,
      "it has characters beyond ASCII": async () => "ps_test_ümläut",
      "it is the word null": async () => "null",
    };
    const answers: Response[] = [];

    test.each(Object.entries(invalid))("is refused when %s", async (_what, make) => {
      const response = await withKey(await make());
      expectError(response, 401, "invalid_api_key");
      expect(header(response, "WWW-Authenticate")).toBe(tokenChallenge);
      answers.push(response);
    });

    test("is refused with the same answer, whatever is wrong with it", () => {
      const seen = answers.map(({ status, text, headers }) => {
        const { date, "x-request-id": _, "x-ratelimit-remaining": __, "x-ratelimit-reset": ___, ...others } = headers;
        return { status, text, headers: { ...others, ratelimit: "" } };
      });
      expect(seen.length).toBe(Object.keys(invalid).length);
      for (const answer of seen) expect(answer).toEqual(seen[0]);
    });
  });

  test.each([
    ["Authorization", (token: string) => `Authorization: Bearer ${token}\r\nauthorization: Bearer ${token}`],
    ["Authorization", (token: string) => `Authorization: Bearer ${token}\r\nAuthorization: Basic eDp5`],
    ["Authorization", (token: string) => `Authorization:\r\nAuthorization: Bearer ${token}`],
    ["Host", (token: string) => `HOST: other\r\nAuthorization: Bearer ${token}`],
  ])("is not read from a request with two %s headers", async (name, lines) => {
    const answer = await sendToApi(
      system.address,
      `GET /v1/inventory HTTP/1.1\r\nHost: g\r\n${lines(key)}\r\nConnection: close\r\n\r\n`,
    );
    expectError(answer, 400, "invalid_request", new RegExp(name));
  });

  test("with 15,000 spaces in it is refused about as quickly as one with as many letters", async () => {
    const fastestMs = { spaces: Number.POSITIVE_INFINITY, letters: Number.POSITIVE_INFINITY };
    for (let i = 0; i < 20; i++) {
      for (const [kind, filler] of [
        ["spaces", " "],
        ["letters", "x"],
      ] as const) {
        const startedMs = performance.now();
        const answer = await get({ authorization: `Bearer a${filler.repeat(15_000)}b` });
        fastestMs[kind] = Math.min(fastestMs[kind], performance.now() - startedMs);
        expectError(answer, 401, "invalid_api_key");
      }
    }
    expect(fastestMs.spaces).toBeLessThan(10 * fastestMs.letters);
  });

  test("is not needed for the documentation", async () => {
    expect(await get({}, "/openapi.json")).toMatchObject({ status: 200 });
    expect(await get({}, "/docs/")).toMatchObject({ status: 200 });
    expect(await get({ authorization: "Bearer nonsense" }, "/openapi.json")).toMatchObject({ status: 200 });
  });

  describe("scopes", () => {
    const operations: [string, string, Scope, number][] = [
      ["GET", "/v1/inventory", "inventory:read", 200],
      ["HEAD", "/v1/inventory", "inventory:read", 200],
      ["GET", "/v1/inventory/1", "inventory:read", 200],
      ["GET", "/v1/inventory/changes", "inventory:read", 400],
      ["PATCH", "/v1/inventory/1", "inventory:write", 200],
      ["GET", "/v1/pets/1001", "store:read", 200],
      ["HEAD", "/v1/pets/1001", "store:read", 200],
      ["GET", "/v1/store/orders", "store:read", 200],
    ];
    const keysOf = new Map<Scope, TestKey>();
    beforeAll(async () => {
      for (const scope of scopes) keysOf.set(scope, await system.issueKey({ plan: "enterprise", scopes: [scope] }));
    });
    const send = (method: string, path: string, token: string) =>
      callApi(system.address, {
        method,
        path,
        headers: {
          authorization: `Bearer ${token}`,
          ...(method === "PATCH" && { "content-type": "application/json" }),
        },
        ...(method === "PATCH" && { body: '{"quantity":100}' }),
      });

    test.each(operations)("%s %s needs the scope %s and no other", async (method, path, needed, status) => {
      for (const scope of scopes) {
        const response = await send(method, path, keysOf.get(scope)!.key);
        if (scope === needed) {
          expect(response.status).toBe(status);
          continue;
        }
        expect(response.status).toBe(403);
        if (method !== "HEAD") expectError(response, 403, "insufficient_scope", needed);
        expect(header(response, "WWW-Authenticate")).toBe(
          `Bearer realm="petstore", error="insufficient_scope", scope="${needed}"`,
        );
      }
    });

    test("a key that is issued without a list of scopes has all of them", async () => {
      const { key: issued } = await system.issueKey();
      for (const [method, path, , status] of operations) {
        expect(await send(method, path, issued)).toMatchObject({ status });
      }
    });

    test("the scope is checked before the petId", async () => {
      const { key: reader } = keysOf.get("inventory:read")!;
      expectError(await send("PATCH", "/v1/inventory/abc", reader), 403, "insufficient_scope");
      expectError(await send("GET", "/v1/pets/abc", reader), 403, "insufficient_scope");
    });
  });

  describe("the order of checks", () => {
    test.each([
      ["GET", "/v1/nothing", 404, "not_found"],
      ["GET", "/", 404, "not_found"],
      ["GET", "/v1", 404, "not_found"],
      ["GET", "/v2/inventory", 404, "not_found"],
      ["GET", "/v1/inventory/", 404, "not_found"],
      ["GET", "/V1/inventory", 404, "not_found"],
      ["GET", "/readyz", 404, "not_found"],
      ["GET", "/metrics", 404, "not_found"],
      ["DELETE", "/v1/inventory", 405, "method_not_allowed"],
      ["GET", "/v1/inventory/abc", 400, "invalid_request"],
      ["GET", "/v1/inventory/changes", 400, "invalid_request"],
      ["PATCH", "/v1/inventory/abc", 400, "invalid_request"],
      ["PATCH", "/v1/inventory/%zz", 400, "invalid_request"],
      ["PATCH", "/v1/inventory/1", 415, "unsupported_media_type"],
      ["GET", "/v1/pets/abc", 400, "invalid_request"],
      ["GET", "/v1/pets/%zz", 400, "invalid_request"],
    ])("%s %s is 401 without a key and %d with one", async (method, path, status, code) => {
      expectError(await callApi(system.address, { method, path }), 401, "missing_api_key");
      const response = await callApi(system.address, { method, path, headers: { authorization: `Bearer ${key}` } });
      expectError(response, status, code);
    });

    test("the limits come right after the key, and count every request with a key whatever its path", async () => {
      const { key: limited } = await system.issueKey({ plan: "enterprise", limits: { perMinute: 4, perDay: 1_000 } });
      const paths: [string, number][] = [
        ["/v1/nothing", 404],
        ["/v1/inventory/abc", 400],
        ["/v1/pets/abc", 400],
        ["/v1/inventory", 200],
        ["/v1/nothing", 429],
        ["/v1/inventory/abc", 429],
        ["/v1/pets/abc", 429],
        ["/v1/inventory", 429],
      ];
      let left = 4;
      for (const [path, status] of paths) {
        const response = await withKey(limited, path);
        left = Math.max(0, left - 1);
        expect({ path, status: response.status }).toEqual({ path, status });
        expect(readLimits(response)).toMatchObject({ limit: 4, remaining: left });
      }
    });
  });
});

describe("the life of an API key", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0, gatewayEnv: { ADDRESS_GUARD_PER_MINUTE: "1000000" } });
    stack.defer(() => system.close());
  });

  async function useAt(clock: TestClock) {
    const gateway = await startLocalGateway(system.gatewayEnv, clock.now);
    stack.defer(() => gateway.close());
    return (token: string) =>
      callApi(gateway.address, { path: "/v1/inventory", headers: { authorization: `Bearer ${token}` } });
  }

  test.each([
    ["in constant use", 9],
    ["without further use", 0],
  ])("an API key %s is refused by every gateway 10 s after its revocation", async (_what, uses) => {
    const clock = new TestClock();
    const gateways = [await useAt(clock), await useAt(clock)];
    const { key, keyId } = await system.issueKey({ plan: "enterprise" });
    for (const use of gateways) expect(await use(key)).toMatchObject({ status: 200 });
    await system.runKeys("revoke", keyId);
    for (let i = 0; i < uses; i++) {
      clock.advance(1_000);
      for (const use of gateways) await use(key);
    }
    clock.advance(10_000 - 1_000 * uses);
    for (const use of gateways) expectError(await use(key), 401, "invalid_api_key");
  });

  test("an API key in use is refused from the moment at which it expires", async () => {
    const clock = new TestClock();
    const use = await useAt(clock);
    const { key } = await system.issueKey({ expiresAtMs: Date.now() + 60_000 });
    await passTimeAt(system.databaseUrls.gateway, 53_000);
    expect(await use(key)).toMatchObject({ status: 200 });
    await passTimeAt(system.databaseUrls.gateway, 7_000);
    clock.advance(7_000); // less than a look-up is used otherwise
    expectError(await use(key), 401, "invalid_api_key");
  });

  test("an API key that is rotated works on for its grace period, and its successor works at once", async () => {
    const clock = new TestClock();
    const use = await useAt(clock);
    const { key, keyId } = await system.issueKey();
    expect(await use(key)).toMatchObject({ status: 200 });
    const { stdout } = await system.runKeys("rotate", keyId, "--grace", "1h", "--json");
    const rotated = JSON.parse(stdout) as { key: string };
    expect(await use(rotated.key)).toMatchObject({ status: 200 });
    clock.advance(10_000);
    await passTimeAt(system.databaseUrls.gateway, 59 * 60_000);
    expect(await use(key)).toMatchObject({ status: 200 });
    clock.advance(10_000);
    await passTimeAt(system.databaseUrls.gateway, 60_000);
    expectError(await use(key), 401, "invalid_api_key");
    expect(await use(rotated.key)).toMatchObject({ status: 200 });
  });
});
