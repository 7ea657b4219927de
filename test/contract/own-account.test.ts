import { openDatabase } from "../../runtime/database/open.ts";
import { untilNextDayMs } from "../support/accounts.ts";
import { type Answer, bodyText, expectError, header, readLimits } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { startLocalGateway, TestClock } from "../support/local-gateway.ts";
import { type Stack, suiteStack } from "../support/stack.ts";
import { type Env, type KeyOptions, type System, startSystem, type TestKey } from "../support/system.ts";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

interface Opened extends TestKey {
  readonly address: string;
  readonly clock: TestClock;
  /** Sends a request with the key or another one. */
  call(path: string, key?: string, method?: string): Promise<Answer>;
}

/** Starts a gateway with its own counts and clock, and issues a key, by default for a new account. */
async function open(stack: Stack, system: System, env: Env = {}, keyOptions: KeyOptions = {}): Promise<Opened> {
  const clock = new TestClock();
  clock.advance(hour - (clock.now() % hour));
  const { address, close } = await startLocalGateway({ ...system.gatewayEnv, ...env }, clock.now);
  stack.defer(close);
  const issued = await system.issueKey(keyOptions);
  const call = (path: string, key = issued.key, method = "GET") =>
    callApi(address, { method, path: `/v1${path}`, headers: { authorization: `Bearer ${key}` } });
  return { ...issued, address, clock, call };
}

const bodyOf = (answer: Answer) => JSON.parse(bodyText(answer));
const few = (perMinute: number): KeyOptions => ({ plan: "enterprise", limits: { perMinute, perDay: 1_000 } });

describe("GET /v1/rate_limit", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
  });

  test("shows plan, windows, ban and key, with the numbers of its own limit headers", async () => {
    const expiresAtMs = Date.now() + 100 * hour;
    const options: KeyOptions = { plan: "pro", expiresAtMs, scopes: ["store:read"] };
    const { call, clock, keyId, accountId } = await open(stack, system, {}, options);
    clock.advance(untilNextDayMs(accountId, clock.now()));
    const startMs = clock.now();
    for (let i = 0; i < 3; i++) await call("/nothing");
    clock.advance(10 * second);
    const answer = await call("/rate_limit");
    expect(answer.status).toBe(200);
    expect(header(answer, "Cache-Control")).toBe("no-store");
    const at = (ms: number) => new Date(Math.ceil(ms / second) * second).toISOString();
    expect(bodyOf(answer)).toEqual({
      plan: "pro",
      windows: [
        { name: "minute", limit: 300, used: 3, remaining: 297, resetAt: at(startMs + minute) },
        { name: "day", limit: 10_000, used: 3, remaining: 9_997, resetAt: at(startMs + 24 * hour) },
      ],
      ban: null,
      key: { id: keyId, scopes: ["store:read"], expiresAt: new Date(expiresAtMs).toISOString() },
    });
    const { resetAt, windows } = readLimits(answer, clock.now());
    expect(resetAt).toBe(Math.ceil((startMs + minute) / second));
    expect(windows).toMatchObject({ minute: { remaining: 297 }, day: { remaining: 9_997 } });
  });

  test("costs nothing, so that exactly the whole limit is left for other requests", async () => {
    const { call } = await open(stack, system, {}, few(20));
    const look = async () => bodyOf(await call("/rate_limit")).windows.map((window: { used: number }) => window.used);
    for (let used = 0; used < 20; used++) {
      expect(await look()).toEqual([used, used]);
      expect(await call("/inventory")).toMatchObject({ status: 200 });
    }
    expect(await look()).toEqual([20, 20]);
    expectError(await call("/inventory"), 429, "rate_limit_exceeded");
    expect(await look()).toEqual([20, 20]);
  });

  test("shows the end of the windows before an account's first request", async () => {
    const { call, clock, accountId } = await open(stack, system);
    clock.advance(untilNextDayMs(accountId, clock.now()) + 20 * second);
    const { resetAt, windows } = readLimits(await call("/rate_limit"), clock.now());
    expect(windows).toMatchObject({ minute: { remaining: 60, resetSeconds: 40 }, day: { resetSeconds: 86_380 } });
    clock.advance(10 * second);
    expect(readLimits(await call("/inventory"), clock.now())).toMatchObject({ remaining: 59, resetAt });
  });

  test("answers an exhausted and a banned key, with the end of the ban", async () => {
    const { call, clock } = await open(stack, system, { BAN_REFUSALS_PER_MINUTE: "5" }, few(1));
    await call("/inventory");
    const exhausted = await call("/rate_limit");
    expect(exhausted.status).toBe(200);
    expect(readLimits(exhausted, clock.now())).toMatchObject({ limit: 1, remaining: 0 });
    let refused = await call("/inventory");
    while (bodyOf(refused).code !== "api_key_banned") {
      clock.advance(100);
      refused = await call("/inventory");
    }
    const { resetAt } = readLimits(refused, clock.now());
    const answer = await call("/rate_limit");
    expect(answer.status).toBe(200);
    expect(bodyOf(answer).ban).toEqual({ until: new Date(resetAt * second).toISOString() });
    clock.advance(5 * minute);
    expect(bodyOf(await call("/rate_limit"))).toMatchObject({ ban: null });
  });

  test("like /v1/usage, has 60 requests a minute for an account, shown in its 429, and bans no key", async () => {
    const { call, clock, account } = await open(stack, system, { BAN_REFUSALS_PER_MINUTE: "5" });
    const { key: second } = await system.issueKey({ account });
    const paths = ["/rate_limit", "/usage"];
    for (let i = 0; i < 60; i++) {
      expect(await call(paths[i % 2]!, i % 3 === 0 ? second : undefined)).toMatchObject({ status: 200 });
    }
    for (let i = 0; i < 40; i++) {
      const refused = await call(paths[i % 2]!);
      expectError(refused, 429, "rate_limit_exceeded");
      expect(readLimits(refused)).toMatchObject({ limit: 60, remaining: 0, windows: { "own-account": { limit: 60 } } });
      expect(Object.keys(readLimits(refused).windows)).toEqual(["own-account"]);
    }
    const { windows } = readLimits(await call("/inventory"), clock.now());
    expect(windows).toMatchObject({ minute: { remaining: 59 }, day: { remaining: 999 } });
    const { key: stranger } = await system.issueKey();
    expect(await call("/rate_limit", stranger)).toMatchObject({ status: 200 });
  });

  test("like /v1/usage, needs a valid key, answers HEAD without a body, and refuses other methods", async () => {
    const { call, clock } = await open(stack, system);
    for (const path of ["/rate_limit", "/usage"]) {
      expectError(await call(path, "none"), 401, "invalid_api_key");
      const head = await call(path, undefined, "HEAD");
      expect(head.status).toBe(200);
      expect(readLimits(head, clock.now())).toMatchObject({ limit: 60 });
      expect(bodyText(head)).toBe("");
      const refused = await call(path, undefined, "POST");
      expectError(refused, 405, "method_not_allowed");
      expect(header(refused, "Allow")).toBe("GET, HEAD");
    }
  });
});

describe("GET /v1/usage", () => {
  const stack = suiteStack();
  let system: System;
  beforeAll(async () => {
    system = await startSystem({ gateways: 0 });
    stack.defer(() => system.close());
  });

  test("counts served and refused requests by minute, written or not, and the deprecated ones", async () => {
    const { call, clock, key, account } = await open(stack, system, {}, few(5));
    const { key: second } = await system.issueKey({ account });
    const { key: stranger } = await system.issueKey();
    const startMs = clock.now();
    const other = await startLocalGateway(system.gatewayEnv, clock.now);
    const headers = { authorization: `Bearer ${key}` };
    for (let i = 0; i < 3; i++) await callApi(other.address, { path: "/v1/inventory", headers });
    await other.close(); // which writes its counts
    for (const path of ["/inventory", "/nothing", "/pets/1", "/pets/1"]) await call(path);
    await call("/inventory", second);
    for (let i = 0; i < 7; i++) expect(await call("/inventory")).toMatchObject({ status: 429 });
    await call("/inventory", stranger);
    await call("/rate_limit");
    clock.advance(minute);
    await call("/inventory");
    const answer = await call("/usage?hours=1");
    expect(answer.status).toBe(200);
    expect(header(answer, "Cache-Control")).toBe("no-store");
    const { from, to, stepSeconds, steps, deprecated } = bodyOf(answer);
    expect({ stepSeconds, deprecated }).toEqual({ stepSeconds: 60, deprecated: 2 });
    expect([from, to]).toEqual([startMs - 58 * minute, startMs + 2 * minute].map((ms) => new Date(ms).toISOString()));
    expect(steps).toHaveLength(60);
    expect(steps.slice(-3)).toEqual([
      { at: new Date(startMs - minute).toISOString(), served: 0, refused: 0 },
      { at: new Date(startMs).toISOString(), served: 8, refused: 7 },
      { at: new Date(startMs + minute).toISOString(), served: 1, refused: 0 },
    ]);
  });

  test.each([
    ["", 24, 3_600],
    ["?hours=1", 60, 60],
    ["?hours=6", 360, 60],
    ["?hours=7", 7, 3_600],
    ["?hours=168", 168, 3_600],
  ])(
    "GET /v1/usage%s has %d steps of %d seconds in order, the last one with the present",
    async (query, count, seconds) => {
      const { call, clock } = await open(stack, system);
      clock.advance(90 * second);
      await call("/inventory");
      const { from, to, stepSeconds, steps } = bodyOf(await call(`/usage${query}`));
      expect({ stepSeconds, count: steps.length }).toEqual({ stepSeconds: seconds, count });
      const starts = steps.map(({ at }: { at: string }) => Date.parse(at));
      expect(starts).toEqual(starts.map((_: number, i: number) => Date.parse(from) + i * seconds * second));
      expect(Date.parse(to)).toBe(starts.at(-1) + seconds * second);
      expect(Date.parse(to)).toBeGreaterThan(clock.now());
      expect(steps.at(-1)).toMatchObject({ served: 1, refused: 0 });
    },
  );

  test.each(["0", "169", "1.5", "-1", "+1", "01", "1e1", "abc", "", "%zz", "1&hours=2", "99999999999999999999"])(
    "GET /v1/usage?hours=%s is refused with a message that names hours",
    async (hours) => {
      const { call } = await open(stack, system);
      const message = "hours must be a whole number from 1 to 168.";
      expectError(await call(`/usage?hours=${hours}`), 400, "invalid_request", message);
    },
  );

  test("is 503 while the counts cannot be read", async () => {
    const broken = await startSystem({ gateways: 0 });
    stack.defer(() => broken.close());
    const { call } = await open(stack, broken);
    const db = openDatabase(broken.databaseUrls.gateway);
    stack.defer(() => db.destroy());
    await db.schema.dropTable("account_minutes");
    const refused = await call("/usage");
    expectError(refused, 503, "service_unavailable");
    expect(header(refused, "Retry-After")).toBe("1");
    expect(await call("/rate_limit")).toMatchObject({ status: 200 });
  });
});
