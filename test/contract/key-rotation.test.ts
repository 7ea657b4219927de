import { isWellFormed } from "../../gateway/accounts/keys/key-format.ts";
import { type Scope, scopes } from "../../gateway/accounts/keys/principal.ts";
import { type Answer, bodyText, expectError, header, readLimits } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { request } from "../support/http.ts";
import { about, passTimeAt } from "../support/key-stores.ts";
import { startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { type Stack, suiteStack } from "../support/stack.ts";
import { type Env, type KeyOptions, type System, startSystem, type TestKey } from "../support/system.ts";

const second = 1_000;
const hour = 3_600 * second;
const day = 24 * hour;
const json = { "content-type": "application/json" };

interface Rotated {
  readonly keyId: string;
  readonly key: string;
  readonly scopes: readonly Scope[];
  readonly expiresAt: string | null;
  readonly previousKeyEndsAt: string;
}

interface Opened extends TestKey {
  readonly address: string;
  readonly clock: TestClock;
  /** Rotates the key or another one. @param body sent as JSON; by default there is none */
  rotate(key?: string, body?: string, headers?: Record<string, string>): Promise<Answer>;
  /** Reads the list. */
  use(key: string): Promise<Answer>;
}

/** Starts a gateway with its own counts and clock where callers may rotate, and issues a key that may. */
async function open(stack: Stack, system: System, env: Env = {}, options: KeyOptions = {}): Promise<Opened> {
  const clock = new TestClock();
  const gatewayEnv = { ...system.gatewayEnv, KEY_ROTATION: "1", ...env };
  const { address, close } = await startLocalGateway(gatewayEnv, clock.now);
  stack.defer(close);
  const issued = await system.issueKey({ scopes, ...options });
  return {
    ...issued,
    address,
    clock,
    rotate: (key = issued.key, body = "", headers = body === "" ? {} : json) =>
      callApi(address, {
        method: "POST",
        path: "/v1/keys/rotate",
        headers: { authorization: `Bearer ${key}`, ...headers },
        ...(body !== "" && { body }),
      }),
    use: (key) => callApi(address, { path: "/v1/inventory", headers: { authorization: `Bearer ${key}` } }),
  };
}

function rotatedKey(answer: Answer): Rotated {
  expect(answer.status).toBe(201);
  return JSON.parse(bodyText(answer));
}

const codeOf = (answer: Answer): string => JSON.parse(bodyText(answer)).code;

describe("POST /v1/keys/rotate", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
  });

  test("is 404 and not documented where it is not allowed", async () => {
    const { key, address, clock } = await open(stack, system, { KEY_ROTATION: "" });
    const headers = { authorization: `Bearer ${key}` };
    const refused = await request(address, { method: "POST", path: "/v1/keys/rotate", headers });
    expectError(refused, 404, "not_found");
    expect(readLimits(refused, clock.now())).toMatchObject({ limit: 60, remaining: 59 });
    const document = await callApi(address, { path: "/openapi.json" });
    expect(bodyText(document)).not.toContain("/keys/rotate");
  });

  test("a rotation gives a new key with the old one's scopes and end, shown in its answer alone", async () => {
    const expiresAtMs = Date.now() + 400 * day;
    const own: Scope[] = ["inventory:read", "keys:rotate"];
    const { rotate, use, key, keyId, clock, address } = await open(stack, system, {}, { expiresAtMs, scopes: own });
    const answer = await rotate(key, '{"graceSeconds":3600}');
    expect(header(answer, "Cache-Control")).toBe("no-store");
    const rotated = rotatedKey(answer);
    expect(rotated).toEqual({
      keyId: expect.stringMatching(/^key_[0-9a-f]{20}$/),
      key: expect.stringMatching(/^ps_test_/),
      scopes: own,
      expiresAt: new Date(expiresAtMs).toISOString(),
      previousKeyEndsAt: expect.any(String),
    });
    expect(Date.parse(rotated.previousKeyEndsAt)).toEqual(about(Date.now() + hour));
    expect(isWellFormed(rotated.key)).toBe(true);
    expect(rotated.keyId).not.toBe(keyId);
    for (const each of [rotated.key, key]) expect(await use(each)).toMatchObject({ status: 200 });
    const limits = await callApi(address, {
      path: "/v1/rate_limit",
      headers: { authorization: `Bearer ${rotated.key}` },
    });
    expect(JSON.parse(bodyText(limits)).key).toEqual({
      id: rotated.keyId,
      scopes: own,
      expiresAt: rotated.expiresAt,
    });
    clock.advance(10 * second);
    await passTimeAt(system.databaseUrls.gateway, hour);
    expectError(await use(key), 401, "invalid_api_key");
    expect(await use(rotated.key)).toMatchObject({ status: 200 });
  });

  test.each([
    ["no body", "", day],
    ["an empty object", "{}", day],
    ["0", '{"graceSeconds":0}', 0],
    ["604800", '{"graceSeconds":604800}', 7 * day],
    ["36e2", '{"graceSeconds":36e2}', hour],
  ])("a rotation takes %s as the grace of the old key", async (_what, body, graceMs) => {
    const { rotate, use, key } = await open(stack, system);
    const { previousKeyEndsAt, expiresAt } = rotatedKey(await rotate(key, body));
    expect(Date.parse(previousKeyEndsAt)).toEqual(about(Date.now() + graceMs));
    expect(expiresAt).toBeNull();
    expect((await use(key)).status).toBe(graceMs === 0 ? 401 : 200);
  });

  test("a rotation never lets the old key work past its own end", async () => {
    const expiresAtMs = Date.now() + hour;
    const { rotate } = await open(stack, system, {}, { expiresAtMs });
    const { previousKeyEndsAt, expiresAt } = rotatedKey(await rotate());
    expect([previousKeyEndsAt, expiresAt]).toEqual(Array(2).fill(new Date(expiresAtMs).toISOString()));
  });

  const graceRule = "graceSeconds must be an integer from 0 to 604800.";
  test.each([
    ['{"graceSeconds":-1}', 400, "invalid_request", graceRule],
    ['{"graceSeconds":604801}', 400, "invalid_request", graceRule],
    ['{"graceSeconds":1.5}', 400, "invalid_request", graceRule],
    ['{"graceSeconds":"60"}', 400, "invalid_request", graceRule],
    ['{"graceSeconds":null}', 400, "invalid_request", graceRule],
    ['{"graceSecs":0}', 400, "invalid_request", "There is no member graceSecs: the body takes graceSeconds."],
    ['{"graceSeconds":0,"ps_live_0":1}', 400, "invalid_request", /^There is no such member/],
    ["[]", 400, "invalid_request", "The body must be a JSON object, or empty."],
    ["null", 400, "invalid_request", "The body must be a JSON object, or empty."],
    ["{", 400, "invalid_json", /./],
    ['{"graceSeconds":1,"graceSeconds":2}', 400, "invalid_json", /graceSeconds/],
    [`{"more":"${"a".repeat(17_000)}"}`, 413, "payload_too_large", /./],
  ])("a rotation with the body %s is refused and changes nothing", async (body, status, code, message) => {
    const { rotate, use, key, account } = await open(stack, system);
    expectError(await rotate(key, body), status, code, message);
    expect(JSON.parse((await system.runKeys("list", "--account", account, "--json")).stdout)).toHaveLength(1);
    expect(await use(key)).toMatchObject({ status: 200 });
  });

  test("a rotation takes application/json only", async () => {
    const { rotate, key } = await open(stack, system);
    for (const type of ["application/merge-patch+json", "text/plain", "application/json; charset=latin1"]) {
      const refused = await rotate(key, "{}", { "content-type": type });
      expectError(refused, 415, "unsupported_media_type", /application\/json in UTF-8/);
      expect(header(refused, "Accept-Post")).toBe("application/json");
    }
  });

  test("a rotation needs the scope keys:rotate, which a key does not have by default", async () => {
    const { rotate } = await open(stack, system);
    const { key: usual } = await system.issueKey();
    const refused = await rotate(usual);
    expectError(refused, 403, "insufficient_scope", /keys:rotate/);
    expectError(await rotate("none"), 401, "invalid_api_key");
  });

  test("a rotation is charged and limited like any request", async () => {
    const limits = { perMinute: 2, perDay: 100 };
    const { rotate, clock } = await open(stack, system, {}, { plan: "enterprise", limits });
    expect(readLimits(await rotate(), clock.now())).toMatchObject({ limit: 2, remaining: 1 });
    expect(readLimits(await rotate(), clock.now())).toMatchObject({ limit: 2, remaining: 0 });
    expectError(await rotate(), 429, "rate_limit_exceeded");
  });

  test("a rotation has a limit of its own, 100 a day for a family, which its 429 describes", async () => {
    const { rotate, clock } = await open(stack, system, {}, { plan: "enterprise" });
    for (let i = 0; i < 100; i++) expect((await rotate()).status).toBe(201);
    const answer = await rotate();
    expectError(answer, 429, "rate_limit_exceeded");
    expect(readLimits(answer)).toMatchObject({ limit: 100, remaining: 0 });
    expect(Math.abs(readLimits(answer).resetAt - clock.now() / 1_000 - 86_400)).toBeLessThan(120);
  });

  test("a repeat gives another key when the first answer was lost, and is 409 after a use", async () => {
    const { rotate, use, key, account } = await open(stack, system);
    const lost = rotatedKey(await rotate());
    const kept = rotatedKey(await rotate());
    expectError(await use(lost.key), 401, "invalid_api_key");
    expect(await use(kept.key)).toMatchObject({ status: 200 });
    expectError(await rotate(), 409, "key_replaced");
    expect(await use(key)).toMatchObject({ status: 200 });
    const listed = JSON.parse((await system.runKeys("list", "--account", account, "--json")).stdout);
    expect(listed.map(({ state }: { state: string }) => state).toSorted()).toEqual(["active", "replaced", "revoked"]);

    const next = rotatedKey(await rotate(kept.key));
    const statuses = await Promise.all([key, kept.key, next.key].map(async (each) => (await use(each)).status));
    expect(statuses).toEqual([401, 200, 200]);
  });

  test("a rotation is refused to a key that was revoked at another gateway and is remembered here", async () => {
    const { rotate, use, key, keyId, account } = await open(stack, system);
    expect(await use(key)).toMatchObject({ status: 200 });
    expect(await system.runKeys("revoke", keyId)).toMatchObject({ code: 0 });
    const refused = await rotate();
    expectError(refused, 401, "invalid_api_key");
    expect(header(refused, "WWW-Authenticate")).toContain("invalid_token");
    expect(JSON.parse((await system.runKeys("list", "--account", account, "--json")).stdout)).toHaveLength(1);
  });

  test("a rotation is no way around a ban: keys of a family are refused, counted, banned together", async () => {
    const limits = { perMinute: 1, perDay: 1_000_000 };
    const env = { BAN_REFUSALS_PER_MINUTE: "6" };
    const { rotate, use, key, clock } = await open(stack, system, env, { plan: "enterprise", limits });
    const { key: next } = rotatedKey(await rotate());
    for (let i = 0; i < 6; i++) {
      clock.advance(i === 1 ? second : 10); // those within a second of the first do not count
      expectError(await use(i % 2 === 0 ? key : next), 429, "rate_limit_exceeded");
    }
    let refused = await use(next);
    for (let i = 0; i < 500 && codeOf(refused) !== "api_key_banned"; i++) refused = await use(next);
    for (const each of [key, next]) {
      expectError(await use(each), 429, "api_key_banned");
      expectError(await rotate(each), 429, "api_key_banned");
    }
    clock.advance(5 * 60 * second);
    expect(await use(next)).toMatchObject({ status: 200 });
  });

  test("a rotation holds at every gateway within 10 s: what was replaced or revoked works nowhere", async () => {
    const { rotate, use, key, account, clock } = await open(stack, system);
    const other = await startLocalGateway({ ...system.gatewayEnv, KEY_ROTATION: "1" }, clock.now);
    stack.defer(other.close);
    const useThere = (each: string) =>
      callApi(other.address, { path: "/v1/inventory", headers: { authorization: `Bearer ${each}` } });
    const { key: next } = rotatedKey(await rotate());
    for (const each of [key, next]) expect(await useThere(each)).toMatchObject({ status: 200 });
    const { key: third } = rotatedKey(await rotate(next)); // which ends the first one
    clock.advance(10 * second);
    expectError(await useThere(key), 401, "invalid_api_key");
    for (const each of [next, third]) expect(await useThere(each)).toMatchObject({ status: 200 });
    const revoked = await system.runKeys("revoke", "--account", account);
    expect(revoked).toMatchObject({ code: 0, stdout: `Account '${account}': 2 keys are revoked.\n` });
    clock.advance(10 * second);
    for (const each of [next, third]) {
      expectError(await useThere(each), 401, "invalid_api_key");
      expectError(await use(each), 401, "invalid_api_key");
    }
  });
});

describe("two gateways", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 2, gatewayEnv: { KEY_ROTATION: "1", LOG_LEVEL: "debug" } });
    stack.defer(() => system.close());
  });

  test("lose no request and log no key while a key is rotated and callers change to the new one", async () => {
    const { key } = await system.issueKey({ plan: "enterprise", scopes });
    const addresses = system.gateways.map(({ listen }) => listen);
    const keys = [key];
    const statuses: number[] = [];
    let isRunning = true;
    const callers = Array.from({ length: 8 }, async (_, i) => {
      while (isRunning) {
        const headers = { authorization: `Bearer ${keys.at(-1)}` };
        statuses.push((await request(addresses[i % addresses.length]!, { path: "/v1/inventory", headers })).status);
      }
    });
    for (let i = 0; i < 20; i++) {
      const answer = await request(addresses[i % addresses.length]!, {
        method: "POST",
        path: "/v1/keys/rotate",
        headers: { authorization: `Bearer ${keys.at(-1)}` },
      });
      keys.push(rotatedKey(answer).key);
      const before = statuses.length;
      while (statuses.length < before + 16) await new Promise(setImmediate); // each caller has changed
    }
    isRunning = false;
    await Promise.all(callers);
    expect(new Set(statuses)).toEqual(new Set([200]));
    const logged = system.gateways.map(({ output }) => output()).join();
    expect(logged).toContain("rotateKey");
    for (const each of keys) expect(logged).not.toContain(each.slice("ps_test_".length));
  });
});
