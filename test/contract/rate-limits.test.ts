import { createServer } from "node:http";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { phaseOf } from "../../gateway/limits/rule.ts";
import { listenOn } from "../../runtime/admin.ts";
import { untilNextDayMs } from "../support/accounts.ts";
import { type Answer, bodyText, expectError, header, readLimits } from "../support/answers.ts";
import { callApi, sendToApi } from "../support/api.ts";
import { type RequestOptions, request } from "../support/http.ts";
import { startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { madeUpKey } from "../support/made-keys.ts";
import { freePort } from "../support/ports.ts";
import { type Stack, suiteStack } from "../support/stack.ts";
import { type Env, type KeyOptions, type System, startSystem } from "../support/system.ts";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

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
    afterSunset = await local({
      PETS_DEPRECATED_AT: "2020-01-01",
      PETS_SUNSET_AT: "2021-01-01",
      PETS_GONE_AFTER_SUNSET: "1",
    });
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

    test("the answers 403 for a missing scope and 429 for an exhausted limit have the limits of their key", async () => {
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

describe("limits", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
  });

  test.each([
    ["free", 60, 1_000],
    ["pro", 300, 10_000],
    ["business", 1_000, 100_000],
  ] as const)("the limits of the plan %s are %d a minute and %d a day", async (plan, perMinute, perDay) => {
    const { use } = await open(stack, system, {}, { plan });
    expect(readLimits(await use())).toMatchObject({
      limit: perMinute,
      windows: { minute: { limit: perMinute, seconds: 60 }, day: { limit: perDay, seconds: 86_400 } },
    });
  });

  test("the limits of an enterprise account are its own, even when the setting lowers those of a plan", async () => {
    const limits = { perMinute: 7, perDay: 70 };
    const { use, clock } = await open(stack, system, { PLAN_LIMITS: "free=1/1" }, { plan: "enterprise", limits });
    const { windows } = readLimits(await use(), clock.now());
    expect(windows).toMatchObject({ minute: { limit: 7, remaining: 6 }, day: { limit: 70, remaining: 69 } });
  });

  test("the limits of a plan follow the setting", async () => {
    const { use, clock } = await open(stack, system, { PLAN_LIMITS: "free=5/50,business=9/90" });
    expect(readLimits(await use(), clock.now()).windows).toMatchObject({ minute: { limit: 5 }, day: { limit: 50 } });
    expect(readLimits(await use(system.keys.business), clock.now())).toMatchObject({ limit: 9 });
    expect(readLimits(await use(system.keys.pro), clock.now())).toMatchObject({ limit: 300 });
  });

  test("the limits follow the plan of the account within 10 s", async () => {
    const { use, clock, account } = await open(stack, system, {});
    expect(readLimits(await use(), clock.now())).toMatchObject({ limit: 60, remaining: 59 });
    const { code } = await system.runKeys("plan", "--account", account, "--plan", "pro");
    expect(code).toBe(0);
    clock.advance(10 * second);
    expect(readLimits(await use(), clock.now())).toMatchObject({ limit: 300, remaining: 298 });
  });

  test("the limits admit 60 requests in a minute, and the next one at the time that the headers give", async () => {
    const { use, clock } = await openToday(stack, system, {});
    const startMs = clock.now();
    for (let left = 59; left >= 0; left--) {
      const answer = await use();
      expect(answer.status).toBe(200);
      expect(readLimits(answer, clock.now())).toMatchObject({
        limit: 60,
        remaining: left,
        resetAt: Math.ceil((startMs + minute) / second),
      });
      clock.advance(500);
    }
    const refused = await use();
    expectError(refused, 429, "rate_limit_exceeded");
    const { resetAt } = readLimits(refused, clock.now());
    expect(resetAt).toBe(Math.ceil((startMs + minute) / second));
    const retryAfter = Number(header(refused, "Retry-After"));
    expect(retryAfter).toBe(30);
    clock.advance((retryAfter - 1) * second);
    expectError(await use(), 429, "rate_limit_exceeded");
    clock.advance(second);
    const answer = await use();
    expect(answer.status).toBe(200);
    expect(readLimits(answer, clock.now()).windows.minute).toMatchObject({ remaining: 59, resetSeconds: 60 });
  });

  test("the limits end by the clock, at a time that differs between accounts", async () => {
    const { use, clock } = await openToday(stack, system, {});
    const first = readLimits(await use(), clock.now());
    expect(first.resetAt * second).toBe(clock.now() + minute);
    clock.advance(59 * second);
    expect(readLimits(await use(), clock.now())).toMatchObject({ resetAt: first.resetAt, remaining: 58 });
    clock.advance(31 * second);
    const next = readLimits(await use(), clock.now());
    expect(next).toMatchObject({ remaining: 59, resetAt: first.resetAt + 60 });
    const ends = new Set<number>();
    for (let i = 0; i < 5; i++) ends.add(readLimits(await use((await system.issueKey()).key), clock.now()).resetAt);
    expect(ends.size).toBeGreaterThan(1);
  });

  test("the limit of the day is not charged for requests that the minute refuses, nor that of the minute for what the day refuses", async () => {
    const limits = { perMinute: 3, perDay: 5 };
    const { use, clock } = await openToday(stack, system, {}, { plan: "enterprise", limits });
    const startMs = clock.now();
    const expectLeft = async (status: number, perMinute: number, perDay: number) => {
      clock.advance(1);
      const answer = await use();
      expect(answer.status).toBe(status);
      const { windows, ...shown } = readLimits(answer, clock.now());
      expect([windows.minute?.remaining, windows.day?.remaining]).toEqual([perMinute, perDay]);
      return shown;
    };
    await expectLeft(200, 2, 4);
    await expectLeft(200, 1, 3);
    expect(await expectLeft(200, 0, 2)).toMatchObject({ limit: 3, remaining: 0 });
    for (let i = 0; i < 10; i++) expect(await expectLeft(429, 0, 2)).toMatchObject({ limit: 3 });
    clock.advance(minute);
    await expectLeft(200, 2, 1);
    expect(await expectLeft(200, 1, 0)).toMatchObject({ limit: 5, remaining: 0 });
    for (let i = 0; i < 10; i++) expect(await expectLeft(429, 1, 0)).toMatchObject({ limit: 5 });
    clock.advance(startMs + 24 * hour - clock.now() - 2);
    expect(await expectLeft(429, 3, 0)).toEqual({
      limit: 5,
      remaining: 0,
      resetAt: (startMs + 24 * hour) / second,
    });
    await expectLeft(200, 2, 4);
  });

  test("the limits are shown for the window that has the smaller share left", async () => {
    const limits = { perMinute: 10, perDay: 6 };
    const { use, clock } = await open(stack, system, {}, { plan: "enterprise", limits });
    expect(readLimits(await use(), clock.now())).toMatchObject({ limit: 6, remaining: 5 });
  });

  test("the limits are exact when all requests arrive at once", async () => {
    const { use } = await open(stack, system, {}, { plan: "enterprise", limits: { perMinute: 10, perDay: 100 } });
    const answers = await Promise.all(Array.from({ length: 40 }, () => use()));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(10);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(30);
    const left = answers.filter(({ status }) => status === 200).map((answer) => readLimits(answer).remaining);
    expect(left.sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  test("the limits keep refused requests from the inventory service", async () => {
    const { listen, admin } = await system.startGateway();
    const { key } = await system.issueKey({ plan: "enterprise", limits: { perMinute: 3, perDay: 100 } });
    const checks = async () =>
      Number(
        /^gateway_check_duration_seconds_count.* (\d+)$/m.exec((await request(admin, { path: "/metrics" })).text)![1],
      );
    const statuses: number[] = [];
    const get = async () => {
      const headers = { authorization: `Bearer ${key}` };
      statuses.push((await callApi(listen, { path: "/v1/inventory", headers })).status);
    };
    for (let i = 0; i < 3; i++) await get();
    const before = await checks();
    for (let i = 0; i < 20; i++) await get();
    expect(await checks()).toBe(before);
    expect(statuses).toEqual([...Array(3).fill(200), ...Array(20).fill(429)]);
  });

  test("the limits count all keys of an account together, apart from other accounts", async () => {
    const { use, clock, account } = await open(stack, system, {});
    const { key: second } = await system.issueKey({ account });
    const { key: stranger } = await system.issueKey();
    expect(readLimits(await use(), clock.now())).toMatchObject({ remaining: 59 });
    expect(readLimits(await use(second), clock.now())).toMatchObject({ remaining: 58 });
    expect(readLimits(await use(), clock.now())).toMatchObject({ remaining: 57 });
    expect(readLimits(await use(stranger), clock.now())).toMatchObject({ remaining: 59 });
  });
});

describe("limits of addresses", () => {
  afterEach(() => void import.meta.jest.restoreAllMocks());
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
  });

  test("the limit of an address refuses the 61st request of a minute without a key, none with one", async () => {
    const { use, clock } = await open(stack, system, {});
    onTestClock(clock);
    clock.advance(minute - ((clock.now() + phaseOf("127.0.0.1")) % minute)); // to the begin of a window of the address
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
      readLimits(refused, clock.now());
    }
    const mine = await use();
    expect(mine.status).toBe(200);
    expect(readLimits(mine, clock.now()).remaining).toBeGreaterThanOrEqual(58); // a minute of the account may have begun
    const { key: newKey } = await system.issueKey();
    expect(await use(newKey)).toMatchObject({ status: 200 });
    clock.advance(40 * second);
    expectError(await use(""), 401, "missing_api_key");
  });

  test("the limit of an address follows the setting, and is not charged for reading the documentation", async () => {
    const { use, clock, address } = await open(stack, system, { ADDRESS_GUARD_PER_MINUTE: "3" });
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

  test("the limit of an address has 300 requests a minute for the documentation, counted by themselves", async () => {
    const { use, clock, address } = await open(stack, system, { ADDRESS_GUARD_PER_MINUTE: "3" });
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
      expect(readLimits(refused, clock.now())).toMatchObject({ limit: 300, remaining: 0 });
    }
    expect(readLimits(await use(""), clock.now())).toMatchObject({ limit: 3, remaining: 2 });
    expect(await use()).toMatchObject({ status: 200 });
    clock.advance(minute);
    expect(await callApi(address, { path: "/docs/" })).toMatchObject({ status: 200 });
  }, 30_000);

  test.each([
    ["counts each client of a trusted proxy by itself", "127.0.0.1, 10.0.0.0/8", [1, 1, 0]],
    ["ignores the X-Forwarded-For of any other peer", "10.0.0.0/8", [1, 0, 0]],
  ])("the limit of an address %s", async (_what, proxies, expected) => {
    const { address, clock } = await open(stack, system, { ADDRESS_GUARD_PER_MINUTE: "2", TRUSTED_PROXIES: proxies });
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
    const { address } = await open(stack, system, { ADDRESS_GUARD_PER_MINUTE: "1", TRUSTED_PROXIES: proxies });
    const bytes = "GET /v1/inventory HTTP/1.1\r\nHost: g\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    const answers = [await sendToApi(address, bytes), await sendToApi(address, bytes)];
    expect(answers.map(({ status }) => status)).toEqual([401, 429]);
    expect(answers.map((answer) => header(answer, "Connection"))).toEqual(["keep-alive", connection]);
  });

  test("the limit of an address counts the addresses of one IPv6 /64 together", async () => {
    const env = { ADDRESS_GUARD_PER_MINUTE: "5", TRUSTED_PROXIES: "127.0.0.1" };
    const { address, clock } = await open(stack, system, env);
    const left: number[] = [];
    for (const forwarded of ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1", "::ffff:192.0.2.1"]) {
      const answer = await callApi(address, { path: "/v1/inventory", headers: { "x-forwarded-for": forwarded } });
      left.push(readLimits(answer, clock.now()).remaining);
    }
    expect(left).toEqual([4, 3, 4, 4]);
  });
});

describe("temporary bans", () => {
  const stack = suiteStack();
  const oneAMinute: KeyOptions = { plan: "enterprise", limits: { perMinute: 1, perDay: 1_000_000 } };
  const env = { BAN_REFUSALS_PER_MINUTE: "5" };
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
  });

  /** Sends requests beyond the limit until the key is banned. @returns the first answer with the ban */
  async function earnBan({ use, clock }: Opened, refusals = 5): Promise<Answer> {
    expect(await use()).toMatchObject({ status: 200 });
    for (let i = 1; i <= refusals; i++) {
      clock.advance(i === 2 ? second : 10); // those within a second of the first do not count
      expectError(await use(), 429, "rate_limit_exceeded");
    }
    // The ban is stored in the background. Until then, further requests get the 429 of the limit.
    for (let i = 0; i < 500; i++) {
      const answer = await use();
      if (codeOf(answer) === "api_key_banned") return answer;
    }
    throw new Error(`no ban after ${refusals} refusals`);
  }

  test("a temporary ban follows 30 refusals within a minute and lasts 5 minutes", async () => {
    const opened = await open(stack, system, {}, oneAMinute);
    const { use, clock } = opened;
    const banned = await earnBan(opened, 30);
    expectError(banned, 429, "api_key_banned");
    expect(header(banned, "Retry-After")).toBe("300");
    const { resetAt, windows } = readLimits(banned, clock.now());
    expect(resetAt).toBe(Math.ceil((clock.now() + 5 * minute) / second));
    expect(windows).toMatchObject({ minute: { remaining: 0, resetSeconds: 300 }, day: { remaining: 0 } });
    // The ban outlasts the window, and further requests neither lengthen nor shorten it.
    for (const left of [239, 178, 117]) {
      clock.advance(61 * second);
      const still = await use();
      expectError(still, 429, "api_key_banned");
      expect(header(still, "Retry-After")).toBe(`${left}`);
      expect(readLimits(still, clock.now())).toMatchObject({ resetAt, remaining: 0 });
    }
    clock.advance(117 * second - 1);
    expectError(await use(), 429, "api_key_banned");
    clock.advance(1);
    expect(await use()).toMatchObject({ status: 200 });
  });

  test("a temporary ban lasts 5, then 15, then 60 minutes, and 5 minutes again after a day without one", async () => {
    const opened = await open(stack, system, env, oneAMinute);
    for (const minutes of [5, 15, 60, 60]) {
      expect(header(await earnBan(opened), "Retry-After")).toBe(`${60 * minutes}`);
      opened.clock.advance(minutes * minute + 23 * hour);
    }
    opened.clock.advance(hour);
    expect(header(await earnBan(opened), "Retry-After")).toBe("300");
  });

  test("a temporary ban within an exhausted day announces the end of the day, not that of the ban", async () => {
    const limits = { perMinute: 10, perDay: 1 };
    const opened = await openToday(stack, system, env, { plan: "enterprise", limits });
    const began = opened.clock.now();
    const banned = await earnBan(opened);
    const leftSeconds = Math.ceil((began + 24 * hour - opened.clock.now()) / second);
    expect(header(banned, "Retry-After")).toBe(`${leftSeconds}`);
    expect(readLimits(banned, opened.clock.now())).toMatchObject({ limit: 1, remaining: 0 });
  });

  test("a temporary ban has durations that follow the setting", async () => {
    const opened = await open(stack, system, { ...env, BAN_LADDER_MINUTES: "1,2" }, oneAMinute);
    for (const minutes of [1, 2, 2]) {
      expect(header(await earnBan(opened), "Retry-After")).toBe(`${60 * minutes}`);
      opened.clock.advance(minutes * minute);
    }
  });

  test("a temporary ban does not follow occasional refusals", async () => {
    const limits = { perMinute: 1_000, perDay: 1 };
    const { use, clock, keyId } = await open(stack, system, env, { plan: "enterprise", limits });
    expect(await use()).toMatchObject({ status: 200 });
    for (let i = 0; i < 20; i++) {
      clock.advance(15 * second);
      expectError(await use(), 429, "rate_limit_exceeded");
    }
    expect((await system.runKeys("bans")).stdout).not.toContain(keyId);
  });

  test("a temporary ban does not follow a burst at the end of the wait", async () => {
    const { use, clock, address, key, keyId } = await open(stack, system, env, oneAMinute);
    expect(await use()).toMatchObject({ status: 200 });
    for (const burst of ["at once", "on one connection"]) {
      const told = await use();
      expectError(told, 429, "rate_limit_exceeded");
      clock.advance(Number(header(told, "Retry-After")) * second);
      if (burst === "at once") {
        const answers = await Promise.all(Array.from({ length: 100 }, () => use()));
        const refused = answers.filter(({ status }) => status === 429);
        expect(refused).toHaveLength(99);
        for (const answer of refused) expectError(answer, 429, "rate_limit_exceeded");
      } else {
        const head = `GET /v1/inventory HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer ${key}\r\n`;
        const connection = connect(Number(address.split(":")[1]));
        connection.write(`${`${head}\r\n`.repeat(99)}${head}Connection: close\r\n\r\n`);
        const raw = await text(connection);
        expect(raw.match(/HTTP\/1.1 429/g)).toHaveLength(99);
        expect(raw).not.toContain("api_key_banned");
      }
      expectError(await use(), 429, "rate_limit_exceeded");
    }
    expect((await system.runKeys("bans")).stdout).not.toContain(keyId);
  });

  test("a temporary ban holds for the key, while another key of the account is only limited", async () => {
    const opened = await open(stack, system, env, oneAMinute);
    const { key: second } = await system.issueKey({ account: opened.account });
    await earnBan(opened);
    expectError(await opened.use(second), 429, "rate_limit_exceeded");
    opened.clock.advance(minute);
    expectError(await opened.use(), 429, "api_key_banned");
    expect(await opened.use(second)).toMatchObject({ status: 200 });
  });

  test("a temporary ban holds at every gateway within 10 s, and after a restart", async () => {
    const opened = await open(stack, system, env, oneAMinute);
    const other = await startLocalGateway(system.gatewayEnv, opened.clock.now);
    stack.defer(() => other.close());
    const headers = { authorization: `Bearer ${opened.key}` };
    expect(await callApi(other.address, { path: "/v1/inventory", headers })).toMatchObject({ status: 200 });
    await earnBan(opened);
    opened.clock.advance(10 * second);
    expectError(await callApi(other.address, { path: "/v1/inventory", headers }), 429, "api_key_banned");
    const restarted = await startLocalGateway(system.gatewayEnv, opened.clock.now);
    stack.defer(() => restarted.close());
    expectError(await callApi(restarted.address, { path: "/v1/inventory", headers }), 429, "api_key_banned");
  });

  test("a temporary ban is listed for operators, and ends within 10 s after they lift it", async () => {
    const opened = await open(stack, system, env, oneAMinute);
    const { use, clock, keyId } = opened;
    await earnBan(opened);
    opened.clock.advance(5 * minute);
    const banned = await earnBan(opened); // the second ban, so that there is a step to forget
    expect(header(banned, "Retry-After")).toBe("900");

    expect((await system.runKeys("bans")).stdout).toContain(keyId);
    const listed = JSON.parse((await system.runKeys("bans", "--json")).stdout) as Record<string, unknown>[];
    expect(listed.find((ban) => ban.keyId === keyId)).toMatchObject({ account: opened.account, step: 2 });
    const lifted = await system.runKeys("unban", keyId);
    expect(lifted).toMatchObject({ code: 0, stderr: "" });
    expect((await system.runKeys("bans")).stdout).not.toContain(keyId);

    clock.advance(10 * second);
    expectError(await use(), 429, "rate_limit_exceeded"); // lifting the ban leaves the window as it was
    clock.advance(minute);
    expect(header(await earnBan(opened), "Retry-After")).toBe("300");
  });
});

function codeOf(answer: Answer): string {
  return (JSON.parse(bodyText(answer)) as { code: string }).code;
}

/** Moves `Date.now` with the clock of a test, because the limit of an address uses it. */
function onTestClock(clock: TestClock): void {
  import.meta.jest.spyOn(Date, "now").mockImplementation(clock.now);
}

interface Opened {
  readonly address: string;
  readonly clock: TestClock;
  readonly key: string;
  readonly keyId: string;
  readonly account: string;
  readonly accountId: string;
  /** Reads the list with this key or another token, or with no token when it is empty. */
  use(token?: string): Promise<Answer>;
}

/** Starts a gateway with its own counts and clock, and issues a key, by default for a new account. */
async function open(stack: Stack, system: System, env: Env, keyOptions: KeyOptions = {}): Promise<Opened> {
  const clock = new TestClock();
  const gateway = await startLocalGateway({ ...system.gatewayEnv, ...env }, clock.now);
  stack.defer(() => gateway.close());
  const { key, keyId, account, accountId } = await system.issueKey(keyOptions);
  return {
    address: gateway.address,
    clock,
    key,
    keyId,
    account,
    accountId,
    use: (token = key) => {
      const headers: Record<string, string> = token === "" ? {} : { authorization: `Bearer ${token}` };
      return callApi(gateway.address, { path: "/v1/inventory", headers });
    },
  };
}

/** The same, at the begin of a day of the account. */
async function openToday(...args: Parameters<typeof open>): Promise<Opened> {
  const opened = await open(...args);
  opened.clock.advance(untilNextDayMs(opened.accountId, opened.clock.now()));
  return opened;
}
