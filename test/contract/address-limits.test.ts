import { phaseMsOf } from "../../gateway/limits/limit-rule.ts";
import { expectError, header, readLimits } from "../support/answers.ts";
import { callApi, sendToApi } from "../support/api.ts";
import { onTestClock, openAccount } from "../support/clocked-gateway.ts";
import { madeUpKey } from "../support/made-keys.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const second = 1_000;
const minute = 60 * second;

describe("limits of addresses", () => {
  afterEach(() => void import.meta.jest.restoreAllMocks());
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
  });

  test("the limit of an address refuses the 61st request of a minute without a key, none with one", async () => {
    const { use, clock } = await openAccount(stack, system, {});
    onTestClock(clock);
    clock.advance(minute - ((clock.now() + phaseMsOf("127.0.0.1")) % minute)); // a window of the address begins
    expect(await use()).toMatchObject({ status: 200 });
    for (let left = 59; left >= 0; left--) {
      // The address is charged for a missing key and for an unknown one.
      const answer = await use(left % 2 === 0 ? "" : madeUpKey());
      expect(answer.status).toBe(401);
      expect(readLimits(answer, clock.now())).toMatchObject({ limit: 60, remaining: left });
    }
    clock.advance(20 * second);
    for (const token of ["", "nonsense", madeUpKey()]) {
      const refused = await use(token);
      expectError(refused, 429, "rate_limit_exceeded");
      expect(refused.headers["www-authenticate"]).toBeUndefined();
      expect(header(refused, "Retry-After")).toBe("40");
      expect(refused.text).toContain("requests without a valid key from this address");
      readLimits(refused, clock.now());
    }
    const mine = await use();
    expect(mine.status).toBe(200);
    expect(readLimits(mine, clock.now()).remaining).toBeGreaterThanOrEqual(58); // a minute may have begun
    const { key: newKey } = await system.issueKey();
    expect(await use(newKey)).toMatchObject({ status: 200 });
    clock.advance(40 * second);
    expectError(await use(""), 401, "missing_api_key");
  });

  test("the limit of an address follows the setting, and the documentation is not charged to it", async () => {
    const { use, clock, address } = await openAccount(stack, system, { ADDRESS_GUARD_PER_MINUTE: "3" });
    for (let left = 2; left >= 0; left--) {
      for (const path of ["/docs/", "/openapi.json"]) {
        expect(await callApi(address, { path })).toMatchObject({ status: 200 });
      }
      expect(readLimits(await use(""), clock.now())).toMatchObject({ limit: 3, remaining: left });
    }
    expectError(await use(""), 429, "rate_limit_exceeded");
    expect(await callApi(address, { path: "/openapi.json" })).toMatchObject({ status: 200 });
    // Malformed HTTP gets the headers too.
    const malformed = await sendToApi(address, "nonsense\r\n\r\n");
    expectError(malformed, 400, "invalid_request");
    expect(readLimits(malformed, clock.now())).toMatchObject({ limit: 3, remaining: 0 });
  });

  test("the documentation has 300 requests a minute for each address, counted by themselves", async () => {
    const { use, clock, address } = await openAccount(stack, system, { ADDRESS_GUARD_PER_MINUTE: "3" });
    onTestClock(clock);
    const paths = ["/docs", "/docs/", "/docs/page.js", "/openapi.json"];
    for (let left = 299; left >= 0; left--) {
      const answer = await callApi(address, { path: paths[left % 4]!, method: left % 3 === 0 ? "HEAD" : "GET" });
      expect(answer.status).toBe(left % 4 === 0 ? 302 : 200);
      expect(readLimits(answer, clock.now())).toMatchObject({ limit: 300, remaining: left });
    }
    for (const path of paths) {
      const refused = await callApi(address, { path });
      expectError(refused, 429, "rate_limit_exceeded");
      expect(refused.text).toContain("requests for documents from this address");
      expect(readLimits(refused, clock.now())).toMatchObject({ limit: 300, remaining: 0 });
    }
    expect(readLimits(await use(""), clock.now())).toMatchObject({ limit: 3, remaining: 2 });
    expect(await use()).toMatchObject({ status: 200 });
    clock.advance(minute);
    expect(await callApi(address, { path: "/docs/" })).toMatchObject({ status: 200 });
  }, 30_000);

  test("a request for documents with two Host headers is charged like any other", async () => {
    const { clock, address } = await openAccount(stack, system, {});
    onTestClock(clock);
    for (const remaining of [299, 298]) {
      const refused = await sendToApi(address, "GET /docs/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
      expectError(refused, 400, "invalid_request");
      expect(readLimits(refused, clock.now())).toMatchObject({ limit: 300, remaining });
    }
  });

  test.each([
    ["counts each client of a trusted proxy by itself", "127.0.0.1, 10.0.0.0/8", [1, 1, 0]],
    ["ignores the X-Forwarded-For of any other peer", "10.0.0.0/8", [1, 0, 0]],
  ])("the limit of an address %s", async (_what, proxies, expected) => {
    const { address, clock } = await openAccount(stack, system, {
      ADDRESS_GUARD_PER_MINUTE: "2",
      TRUSTED_PROXIES: proxies,
    });
    const left: number[] = [];
    for (const forwarded of ["192.0.2.1", "198.51.100.7, 192.0.2.2, 10.1.2.3", "192.0.2.1"]) {
      const answer = await callApi(address, { path: "/v1/inventory", headers: { "x-forwarded-for": forwarded } });
      left.push(readLimits(answer, clock.now()).remaining);
    }
    expect(left).toEqual(expected);
  });

  test.each([
    ["ends the connection of a client", "10.0.0.0/8", "close"],
    ["keeps the connection of a proxy", "127.0.0.1", "keep-alive"],
  ])("the limit of an address %s that has nothing left", async (_what, proxies, connection) => {
    const { address } = await openAccount(stack, system, { ADDRESS_GUARD_PER_MINUTE: "1", TRUSTED_PROXIES: proxies });
    const bytes = "GET /v1/inventory HTTP/1.1\r\nHost: g\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    const answers = [await sendToApi(address, bytes), await sendToApi(address, bytes)];
    expect(answers.map(({ status }) => status)).toEqual([401, 429]);
    expect(answers.map((answer) => header(answer, "Connection"))).toEqual(["keep-alive", connection]);
  });

  test("the limit of an address counts the addresses of one IPv6 /64 together", async () => {
    const env = { ADDRESS_GUARD_PER_MINUTE: "5", TRUSTED_PROXIES: "127.0.0.1" };
    const { address, clock } = await openAccount(stack, system, env);
    const left: number[] = [];
    for (const forwarded of ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1", "::ffff:192.0.2.1"]) {
      const answer = await callApi(address, { path: "/v1/inventory", headers: { "x-forwarded-for": forwarded } });
      left.push(readLimits(answer, clock.now()).remaining);
    }
    expect(left).toEqual([4, 3, 4, 4]);
  });
});
