import { expectError, header, readLimits } from "../support/answers.ts";
import { callApi } from "../support/api.ts";
import { openAccount, openToday } from "../support/clocked-gateway.ts";
import { request } from "../support/http.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

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
    const { use } = await openAccount(stack, system, {}, { plan });
    expect(readLimits(await use())).toMatchObject({
      limit: perMinute,
      windows: { minute: { limit: perMinute, seconds: 60 }, day: { limit: perDay, seconds: 86_400 } },
    });
  });

  test("the limits of an enterprise account are its own, even if a setting lowers those of a plan", async () => {
    const limits = { perMinute: 7, perDay: 70 };
    const { use, clock } = await openAccount(
      stack,
      system,
      { PLAN_LIMITS: "free=1/1" },
      { plan: "enterprise", limits },
    );
    const { windows } = readLimits(await use(), clock.now());
    expect(windows).toMatchObject({ minute: { limit: 7, remaining: 6 }, day: { limit: 70, remaining: 69 } });
  });

  test("the limits of a plan follow the setting", async () => {
    const { use, clock } = await openAccount(stack, system, { PLAN_LIMITS: "free=5/50,business=9/90" });
    expect(readLimits(await use(), clock.now()).windows).toMatchObject({ minute: { limit: 5 }, day: { limit: 50 } });
    expect(readLimits(await use(system.keys.business), clock.now())).toMatchObject({ limit: 9 });
    expect(readLimits(await use(system.keys.pro), clock.now())).toMatchObject({ limit: 300 });
  });

  test("the limits follow the plan of the account within 10 s", async () => {
    const { use, clock, account } = await openAccount(stack, system, {});
    expect(readLimits(await use(), clock.now())).toMatchObject({ limit: 60, remaining: 59 });
    const { code } = await system.runKeys("plan", "--account", account, "--plan", "pro");
    expect(code).toBe(0);
    clock.advance(10 * second);
    expect(readLimits(await use(), clock.now())).toMatchObject({ limit: 300, remaining: 298 });
  });

  test("the limits admit 60 requests in a minute, and the next one at the time that headers give", async () => {
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

  test("the day is not charged for what the minute refuses, nor is the minute for the day's", async () => {
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
    const { use, clock } = await openAccount(stack, system, {}, { plan: "enterprise", limits });
    expect(readLimits(await use(), clock.now())).toMatchObject({ limit: 6, remaining: 5 });
  });

  test("the limits are exact when all requests arrive at once", async () => {
    const { use } = await openAccount(
      stack,
      system,
      {},
      { plan: "enterprise", limits: { perMinute: 10, perDay: 100 } },
    );
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
    const { use, clock, account } = await openAccount(stack, system, {});
    const { key: second } = await system.issueKey({ account });
    const { key: stranger } = await system.issueKey();
    expect(readLimits(await use(), clock.now())).toMatchObject({ remaining: 59 });
    expect(readLimits(await use(second), clock.now())).toMatchObject({ remaining: 58 });
    expect(readLimits(await use(), clock.now())).toMatchObject({ remaining: 57 });
    expect(readLimits(await use(stranger), clock.now())).toMatchObject({ remaining: 59 });
  });
});
