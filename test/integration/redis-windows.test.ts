import fc from "fast-check";
import type { Redis } from "ioredis";
import { strikeSharing } from "../../gateway/admission/shared-strikes.ts";
import { MemoryWindows } from "../../gateway/limits/memory-windows.ts";
import { RedisWindows } from "../../gateway/limits/redis-windows.ts";
import type { Decision } from "../../gateway/limits/windows.ts";
import { accountWindows } from "../../gateway/limits/windows.ts";
import { admitted, hourMs, left, threeGateways, windows } from "../support/limit-gateways.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

describe("windows on Redis", () => {
  const stack = suiteStack();
  const { clock, gateways, startGateway, now, newCaller, ask, look, calls } = threeGateways(stack);

  test("three gateways admit exactly the limit, and no two requests see the same count", async () => {
    const caller = newCaller();
    const decisions: Decision[] = [];
    for (let round = 0; round < 10; round++) {
      decisions.push(...(await Promise.all(Array.from({ length: 64 }, (_, i) => ask(i, caller)))));
    }
    expect(admitted(decisions)).toHaveLength(300);
    expect(new Set(admitted(decisions).map((decision) => left(decision)[0])).size).toBe(300);
  });

  test("requests of one turn share a call to Redis, and those of a refused caller need none", async () => {
    const [caller, other] = [newCaller(), newCaller()];
    await ask(0, caller);
    const before = await calls();
    await Promise.all(Array.from({ length: 100 }, (_, i) => ask(0, i % 2 === 0 ? caller : other)));
    expect((await calls()) - before).toBe(1);
    for (let i = 0; i < 300; i++) await ask(0, caller, accountWindows({ perMinute: 60, perDay: 1_000 }));
    const exhausted = await calls();
    for (let i = 0; i < 200; i++) await ask(0, caller, accountWindows({ perMinute: 60, perDay: 1_000 }));
    expect(await calls()).toBe(exhausted);
  });

  test.each([
    ["has counts that fell", (charge: number[]) => charge.with(2, 0).with(3, 0)],
    ["admits more than was asked for", (charge: number[]) => charge.with(1, 9)],
    ["lacks an account", (charge: number[]) => charge.slice(0, 1)],
  ])("an answer of Redis that %s is none: the gateway decides alone, and asks again", async (_, spoil) => {
    const caller = newCaller();
    const { limiter, redis, changes } = await startGateway();
    await ask(1, caller);
    await limiter.charge(caller, windows);
    type Client = Redis & { chargeWindows(...args: unknown[]): Promise<number[]> };
    const { chargeWindows } = redis as Client;
    (redis as Client).chargeWindows = async (...args) => spoil(await chargeWindows.apply(redis, args));
    const alone = await limiter.charge(caller, windows);
    (redis as Client).chargeWindows = chargeWindows;
    expect(alone.admitted).toBe(true);
    expect(left(alone)[0]).toBe(99); // its share of what was left
    expect(changes[0]).toBe(true);
    await until(() => changes.at(-1) === false);
    await limiter.reportCounts();
    expect(left(await ask(1, caller))[0]).toBe(296);
  });

  test("an answer that arrives while this thread is busy counts, and Redis is not taken for away", async () => {
    const caller = newCaller();
    const { limiter, changes } = gateways[0]!;
    const decided = limiter.charge(caller, windows);
    await new Promise(setImmediate); // the command has been sent, and nothing has been read since
    for (const untilMs = performance.now() + 500; performance.now() < untilMs; );
    expect(left(await decided)).toEqual([299, 9_999]);
    expect(changes).toEqual([]);
    await until(async () => left(await look(1, caller)).join() === "299,9999");
  });

  test("a look charges nothing, and sees what every gateway has charged before it", async () => {
    const caller = newCaller();
    for (const gateway of [0, 1, 2]) expect(left(await look(gateway, caller))).toEqual([300, 10_000]);
    expect(await gateways[0]!.redis.exists(`petstore:counts:1:${caller}`)).toBe(0);
    for (let i = 0; i < 11; i++) await ask(i === 0 ? 0 : 1, caller);
    for (const gateway of [0, 1, 2]) expect(left(await look(gateway, caller))).toEqual([289, 9_989]);
    // In one call with charges, in the order of arrival.
    const together = await Promise.all([ask(0, caller), look(0, caller), ask(0, caller), look(0, caller)]);
    expect(together.map(left)).toEqual([
      [288, 9_988],
      [288, 9_988],
      [287, 9_987],
      [287, 9_987],
    ]);
    for (let i = 0; i < 300; i++) await ask(2, caller);
    for (const gateway of [0, 2]) expect(left(await look(gateway, caller))).toEqual([0, 9_700]);
  });

  test("a look at an account with nothing left shows what all gateways have charged", async () => {
    const caller = newCaller();
    const lower = accountWindows({ perMinute: 3, perDay: 10_000 });
    for (let i = 0; i < 3; i++) await ask(0, caller);
    for (let i = 0; i < 5; i++) await ask(1, caller);
    for (const gateway of [0, 1, 2]) {
      const { states } = await gateways[gateway]!.limiter.readShared(caller, lower);
      expect(states.map(({ used }) => used)).toEqual([8, 8]);
    }
  });

  test("requests of more accounts than fit in one call wait for one round trip only", async () => {
    const { limiter, breaker } = gateways[0]!;
    const run = import.meta.jest.spyOn(breaker, "run");
    stack.defer(() => run.mockRestore());
    const decided = Array.from({ length: 1_000 }, async () => limiter.charge(newCaller(), windows));
    await new Promise(setImmediate); // all calls have been sent, and nothing has been read since
    expect(run).toHaveBeenCalledTimes(5);
    await Promise.all(decided);
  });

  test("a gateway that reads an answer late is not behind the clock of Redis after it", async () => {
    const caller = newCaller();
    const { limiter, memory } = gateways[0]!;
    const decided = limiter.charge(caller, windows);
    await new Promise(setImmediate); // the command has been sent, and nothing has been read since
    for (const untilMs = performance.now() + 100; performance.now() < untilMs; );
    await decided;
    expect(memory.nowMs()).toBeGreaterThan(now() - 50);
  });

  test("a flood of 10,000 requests that the minute refuses charges nothing to the day", async () => {
    const caller = newCaller();
    const small = accountWindows({ perMinute: 10, perDay: 1_000 });
    for (let round = 0; round < 100; round++) {
      await Promise.all(Array.from({ length: 101 }, (_, i) => ask(i, caller, small)));
    }
    expect(left(await ask(0, caller, small))).toEqual([0, 990]);
    // A gateway that knows nothing of the caller asks Redis.
    const other = await startGateway();
    expect(left(await other.limiter.charge(caller, small))).toEqual([0, 990]);
  });

  test("a caller with an exhausted day sees the minute as it is now, not as at its first refusal", async () => {
    const caller = newCaller();
    const spent = accountWindows({ perMinute: 5, perDay: 2 });
    for (let i = 0; i < 2; i++) expect((await ask(0, caller, spent)).admitted).toBe(true);
    expect(left(await ask(0, caller, spent))).toEqual([3, 0]);
    clock.offsetMs += 61_000;
    const later = await ask(0, caller, spent);
    expect(later.admitted).toBe(false);
    expect(left(later)).toEqual([5, 0]);
    expect(later.states[0]!.resetAtMs).toBeGreaterThan(later.nowMs);
  });

  test("a caller is refused for no longer than a window when Redis's clock is set back by an hour", async () => {
    const caller = newCaller();
    const few = accountWindows({ perMinute: 5, perDay: 1_000 });
    for (let i = 0; i < 5; i++) expect((await ask(0, caller, few)).admitted).toBe(true);
    clock.offsetMs -= 3_600_000;
    for (const gateway of [0, 1, 0]) {
      const decision = await ask(gateway, caller, few);
      expect(decision.admitted).toBe(true);
      expect(decision.states[0]!.resetAtMs).toBeLessThanOrEqual(decision.nowMs + 60_000);
    }
    clock.offsetMs += 3_600_000;
  });

  test("a changed plan applies at once and keeps what was used", async () => {
    const caller = newCaller();
    for (let i = 0; i < 60; i++) await ask(i, caller, accountWindows({ perMinute: 60, perDay: 1_000 }));
    expect((await ask(0, caller, accountWindows({ perMinute: 60, perDay: 1_000 }))).admitted).toBe(false);
    expect(left(await ask(0, caller, windows))).toEqual([239, 9_939]);
    expect((await ask(1, caller, accountWindows({ perMinute: 60, perDay: 1_000 }))).admitted).toBe(false);
  });

  test("a caller beyond a lower limit loses nothing of what it has used", async () => {
    const caller = newCaller();
    const lower = accountWindows({ perMinute: 3, perDay: 10_000 });
    for (let i = 0; i < 10; i++) await ask(0, caller);
    for (let i = 0; i < 5; i++) expect(await ask(1, caller, lower)).toMatchObject({ admitted: false });
    expect(left(await ask(2, caller))).toEqual([289, 9_989]);
  });

  test("a Redis that has lost the latest counts gets them back from a gateway", async () => {
    const caller = newCaller();
    const { redis } = gateways[0]!;
    const key = `petstore:counts:1:${caller}`;
    await ask(0, caller);
    const older = await redis.hgetallBuffer(key);
    for (let i = 0; i < 9; i++) await ask(0, caller);
    await redis.hset(key, older);
    expect(left(await ask(0, caller))).toEqual([289, 9_989]);
    expect(left(await ask(1, caller))).toEqual([288, 9_988]);
  });

  test("a Redis that has lost its data counts each request once when all gateways have asked again", async () => {
    const caller = newCaller();
    for (let i = 0; i < 6; i++) await ask(0, caller);
    for (let i = 0; i < 2; i++) await ask(2, caller);
    await gateways[0]!.redis.flushall();
    for (let i = 0; i < 4; i++) await ask(1, caller); // this gateway has not seen the caller before
    for (const gateway of [0, 2]) await look(gateway, caller);
    expect(left(await look(1, caller))).toEqual([288, 9_988]);
    clock.offsetMs += 60_000; // the next minute of the same day
    expect(left(await ask(1, caller))).toEqual([299, 9_987]);
  });

  test("a request whose answer was lost is counted once by a Redis that then loses its data", async () => {
    const caller = newCaller();
    const { breaker, redis } = gateways[0]!;
    const run = import.meta.jest.spyOn(breaker, "run");
    stack.defer(() => run.mockRestore());
    run.mockImplementationOnce(async (_key, call) => {
      await call();
      throw new Error("the answer is lost");
    });
    await ask(0, caller);
    await look(1, caller);
    await redis.flushall();
    for (const gateway of [1, 0]) await look(gateway, caller);
    expect(left(await look(2, caller))).toEqual([299, 9_999]);
  });

  test("a key is kept until the end of its day, and holds nothing of the day before", async () => {
    const caller = newCaller();
    const { redis } = gateways[0]!;
    const key = `petstore:counts:1:${caller}`;
    const endsInMs = async () => (await look(0, caller)).states[1]!.resetAtMs - now();
    for (const gateway of [0, 1, 2]) await ask(gateway, caller);
    expect(await redis.hlen(key)).toBe(4);
    expect(Math.abs((await redis.pttl(key)) - (await endsInMs()))).toBeLessThan(1_000);
    clock.offsetMs += 24 * hourMs;
    expect(left(await ask(1, caller))).toEqual([299, 9_999]);
    expect(await redis.hlen(key)).toBe(2);
    expect(Math.abs((await redis.pttl(key)) - (await endsInMs()))).toBeLessThan(1_000);
  });

  test("a gateway whose clock is behind shows and keeps the windows of Redis", async () => {
    const caller = newCaller();
    const { states: known } = await ask(0, caller);
    const { redis, breaker } = gateways[0]!;
    const memory = new MemoryWindows({ maxAccounts: 10, gatewayCount: 3, now: () => now() - 30_000, elapsedMs: now });
    const limiter = new RedisWindows({ redis, memory, breaker, clockOffsetMs: () => clock.offsetMs });
    expect(left(await limiter.charge(caller, windows))).toEqual([298, 9_998]);
    const alone = memory.charge(caller, windows);
    expect(alone.states.map(({ resetAtMs }) => resetAtMs)).toEqual(known.map(({ resetAtMs }) => resetAtMs));
    expect(left(await limiter.charge(caller, windows))).toEqual([296, 9_996]);
  });

  test("a gateway reports the counts of 1,000 callers in 5 calls, which change nothing there", async () => {
    const callers = Array.from({ length: 1_000 }, newCaller);
    const gateway = await startGateway();
    await Promise.all(callers.map((caller) => gateway.limiter.charge(caller, windows)));
    for (const caller of callers.slice(0, 10)) await ask(0, caller);
    const counts = () =>
      Promise.all(callers.map((caller) => gateway.redis.hgetallBuffer(`petstore:counts:1:${caller}`)));
    const [before, callsBefore] = [await counts(), await calls()];
    await gateway.limiter.reportCounts();
    expect((await calls()) - callsBefore).toBe(5);
    expect(await counts()).toEqual(before);
  });

  test("any sequence of requests, clock steps and gateways agrees with a plain model", async () => {
    const step = fc.record({
      gateway: fc.nat(2),
      caller: fc.nat(2),
      forwardMs: fc.oneof({ weight: 5, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max: 90_000 })),
      perMinute: fc.constantFrom(3, 5),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const names = [newCaller(), newCaller(), newCaller()];
        const used = new Map<string, number>();
        for (const { gateway, caller, forwardMs, perMinute } of steps) {
          clock.offsetMs += forwardMs;
          const name = names[caller]!;
          const of = accountWindows({ perMinute, perDay: 12 });
          const decision = await ask(gateway, name, of);
          // The model goes by the ends that the decision shows, so that both see the same windows.
          const keys = decision.states.map(({ name: window, resetAtMs }) => `${name} ${window} ${resetAtMs}`);
          const free = of.map(({ limit }, w) => limit - (used.get(keys[w]!) ?? 0));
          expect(decision.admitted).toBe(free.every((each) => each > 0));
          for (const key of keys) used.set(key, (used.get(key) ?? 0) + (decision.admitted ? 1 : 0));
          // A refusal from memory shows what this gateway has heard.
          const expected = of.map(({ limit }, w) => limit - used.get(keys[w]!)!);
          if (decision.admitted) expect(left(decision)).toEqual(expected);
        }
      }),
      { numRuns: 30 },
    );
  });

  test("FLUSHALL loses no request that the gateways have counted", async () => {
    const caller = newCaller();
    for (let i = 0; i < 120; i++) await ask(i, caller);
    await gateways[0]!.redis.flushall();
    const decisions = await Promise.all(Array.from({ length: 400 }, (_, i) => ask(i, caller)));
    expect(120 + admitted(decisions).length).toBeLessThanOrEqual(303);
    expect(120 + admitted(decisions).length).toBeGreaterThanOrEqual(300);
  });

  test("refusals count for 60 seconds from their beginning, also after Redis's clock was set back", async () => {
    const share = strikeSharing(gateways[0]!.redis, gateways[0]!.breaker, () => clock.offsetMs);
    const key = newCaller();
    const refuse = async (count: number, laterMs: number) => {
      clock.offsetMs += laterMs;
      return (await share(new Map([[key, count]]), 30)).length;
    };
    expect(await refuse(1, 0)).toBe(0);
    expect(await refuse(15, 30_000)).toBe(0);
    expect(await refuse(15, 58_000)).toBe(1); // the first one was a minute and a half ago
    expect(await refuse(15, 1_000)).toBe(0); // the count has begun again
    expect(await refuse(15, 60_000)).toBe(0);
    expect(await refuse(14, 59_000)).toBe(0);
    expect(await refuse(15, -3_600_000)).toBe(0);
    expect(await refuse(15, 1_000)).toBe(1);
  });
});
