import fc from "fast-check";
import type { Redis } from "ioredis";
import { shareRefusals } from "../../gateway/admission/shared-refusals.ts";
import { MemoryWindows } from "../../gateway/limits/memory-windows.ts";
import { quotaWindows } from "../../gateway/limits/plan-windows.ts";
import { Breaker } from "../../gateway/limits/redis-breaker.ts";
import { connectRedis } from "../../gateway/limits/redis-connection.ts";
import { RedisWindows } from "../../gateway/limits/redis-windows.ts";
import { charge, indexAt, type Ledger, lengthsMs, phaseOf, type StatedCounts } from "../../gateway/limits/rule.ts";
import type { Decision, Window } from "../../gateway/limits/windows.ts";
import { newAccountToday } from "../support/accounts.ts";
import { LoopClock } from "../support/loop-clock.ts";
import { type RedisServer, startRedisServer } from "../support/redis-server.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

interface Gateway {
  readonly limiter: RedisWindows;
  readonly memory: MemoryWindows;
  readonly breaker: Breaker;
  readonly redis: Redis;
  readonly changes: boolean[];
}

const windows = quotaWindows({ perMinute: 300, perDay: 10_000 });
const hourMs = 3_600_000;

describe("windows on Redis", () => {
  const stack = suiteStack();
  let server: RedisServer;
  let gateways: Gateway[];
  let clockOffsetMs = 0;
  const now = () => Date.now() + clockOffsetMs;
  const newCaller = () => newAccountToday(now());

  /** Starts the part of a gateway that decides limits. */
  async function startGateway(): Promise<Gateway> {
    const redis = connectRedis(server.url) as Redis;
    redis.on("error", () => {});
    const changes: boolean[] = [];
    const breaker = new Breaker({
      probe: () => redis.ping(),
      probeIntervalMs: 50,
      onChange: (isOpen) => {
        changes.push(isOpen);
        if (!isOpen) void limiter.stateCounts();
      },
    });
    const memory = new MemoryWindows({ maxAccounts: 10_000, gateways: 3, now });
    stack.defer(() => {
      breaker.close();
      redis.disconnect();
    });
    const limiter = new RedisWindows({ redis, memory, breaker, clockOffsetMs: () => clockOffsetMs });
    while (redis.status !== "ready") await new Promise((resolve) => redis.once("ready", resolve));
    return { limiter, memory, breaker, redis, changes };
  }

  beforeAll(async () => {
    server = await startRedisServer();
    stack.defer(() => server.stop());
    gateways = await Promise.all([startGateway(), startGateway(), startGateway()]);
  });

  const ask = async (gateway: number, caller: string, of: readonly Window[] = windows) =>
    gateways[gateway % gateways.length]!.limiter.decide(caller, of);
  const look = async (gateway: number, caller: string) => gateways[gateway]!.limiter.peek(caller, windows);
  const admitted = (decisions: readonly Decision[]) => decisions.filter((decision) => decision.admitted);
  const left = ({ windows: states }: Decision) => states.map(({ remaining }) => remaining);
  const calls = async () => {
    const stats = await gateways[0]!.redis.info("commandstats");
    return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
  };
  const backAgain = async () => {
    for (const { redis, changes, limiter } of gateways) {
      await until(() => redis.status === "ready" && changes.at(-1) !== true);
      await limiter.stateCounts();
    }
  };

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
    for (let i = 0; i < 300; i++) await ask(0, caller, quotaWindows({ perMinute: 60, perDay: 1_000 }));
    const exhausted = await calls();
    for (let i = 0; i < 200; i++) await ask(0, caller, quotaWindows({ perMinute: 60, perDay: 1_000 }));
    expect(await calls()).toBe(exhausted);
  });

  test("an answer that arrives while this thread is busy counts, and Redis is not taken for away", async () => {
    const caller = newCaller();
    const { limiter, changes } = gateways[0]!;
    const decided = limiter.decide(caller, windows);
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
    const lower = quotaWindows({ perMinute: 3, perDay: 10_000 });
    for (let i = 0; i < 3; i++) await ask(0, caller);
    for (let i = 0; i < 5; i++) await ask(1, caller);
    for (const gateway of [0, 1, 2]) {
      const { windows: states } = await gateways[gateway]!.limiter.peek(caller, lower);
      expect(states.map(({ used }) => used)).toEqual([8, 8]);
    }
  });

  test("requests of more accounts than fit in one call wait for one round trip only", async () => {
    const { limiter, breaker } = gateways[0]!;
    const run = import.meta.jest.spyOn(breaker, "run");
    stack.defer(() => run.mockRestore());
    const decided = Array.from({ length: 1_000 }, async () => limiter.decide(newCaller(), windows));
    await new Promise(setImmediate); // all calls have been sent, and nothing has been read since
    expect(run).toHaveBeenCalledTimes(5);
    await Promise.all(decided);
  });

  test("a gateway that reads an answer late is not behind the clock of Redis after it", async () => {
    const caller = newCaller();
    const { limiter, memory } = gateways[0]!;
    const decided = limiter.decide(caller, windows);
    await new Promise(setImmediate); // the command has been sent, and nothing has been read since
    for (const untilMs = performance.now() + 100; performance.now() < untilMs; );
    await decided;
    expect(memory.nowMs()).toBeGreaterThan(now() - 50);
  });

  test("a flood of 10,000 requests that the minute refuses charges nothing to the day", async () => {
    const caller = newCaller();
    const small = quotaWindows({ perMinute: 10, perDay: 1_000 });
    for (let round = 0; round < 100; round++) {
      await Promise.all(Array.from({ length: 101 }, (_, i) => ask(i, caller, small)));
    }
    expect(left(await ask(0, caller, small))).toEqual([0, 990]);
    // A gateway that knows nothing of the caller asks Redis.
    const other = await startGateway();
    expect(left(await other.limiter.decide(caller, small))).toEqual([0, 990]);
  });

  test("a caller with an exhausted day sees the minute as it is now, not as at its first refusal", async () => {
    const caller = newCaller();
    const spent = quotaWindows({ perMinute: 5, perDay: 2 });
    for (let i = 0; i < 2; i++) expect((await ask(0, caller, spent)).admitted).toBe(true);
    expect(left(await ask(0, caller, spent))).toEqual([3, 0]);
    clockOffsetMs += 61_000;
    const later = await ask(0, caller, spent);
    expect(later.admitted).toBe(false);
    expect(left(later)).toEqual([5, 0]);
    expect(later.windows[0]!.resetAtMs).toBeGreaterThan(later.nowMs);
  });

  test("a caller is refused for no longer than a window when Redis's clock is set back by an hour", async () => {
    const caller = newCaller();
    const few = quotaWindows({ perMinute: 5, perDay: 1_000 });
    for (let i = 0; i < 5; i++) expect((await ask(0, caller, few)).admitted).toBe(true);
    clockOffsetMs -= 3_600_000;
    for (const gateway of [0, 1, 0]) {
      const decision = await ask(gateway, caller, few);
      expect(decision.admitted).toBe(true);
      expect(decision.windows[0]!.resetAtMs).toBeLessThanOrEqual(decision.nowMs + 60_000);
    }
    clockOffsetMs += 3_600_000;
  });

  test("a changed plan applies at once and keeps what was used", async () => {
    const caller = newCaller();
    for (let i = 0; i < 60; i++) await ask(i, caller, quotaWindows({ perMinute: 60, perDay: 1_000 }));
    expect((await ask(0, caller, quotaWindows({ perMinute: 60, perDay: 1_000 }))).admitted).toBe(false);
    expect(left(await ask(0, caller, windows))).toEqual([239, 9_939]);
    expect((await ask(1, caller, quotaWindows({ perMinute: 60, perDay: 1_000 }))).admitted).toBe(false);
  });

  test("a caller beyond a lower limit loses nothing of what it has used", async () => {
    const caller = newCaller();
    const lower = quotaWindows({ perMinute: 3, perDay: 10_000 });
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
    clockOffsetMs += 60_000; // the next minute of the same day
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
    const endsInMs = async () => (await look(0, caller)).windows[1]!.resetAtMs - now();
    for (const gateway of [0, 1, 2]) await ask(gateway, caller);
    expect(await redis.hlen(key)).toBe(4);
    expect(Math.abs((await redis.pttl(key)) - (await endsInMs()))).toBeLessThan(1_000);
    clockOffsetMs += 24 * hourMs;
    expect(left(await ask(1, caller))).toEqual([299, 9_999]);
    expect(await redis.hlen(key)).toBe(2);
    expect(Math.abs((await redis.pttl(key)) - (await endsInMs()))).toBeLessThan(1_000);
  });

  test("a gateway whose clock is behind shows and keeps the windows of Redis", async () => {
    const caller = newCaller();
    const { windows: known } = await ask(0, caller);
    const { redis, breaker } = gateways[0]!;
    const memory = new MemoryWindows({ maxAccounts: 10, gateways: 3, now: () => now() - 30_000 });
    const limiter = new RedisWindows({ redis, memory, breaker, clockOffsetMs: () => clockOffsetMs });
    expect(left(await limiter.decide(caller, windows))).toEqual([298, 9_998]);
    const alone = memory.decide(caller, windows);
    expect(alone.windows.map(({ resetAtMs }) => resetAtMs)).toEqual(known.map(({ resetAtMs }) => resetAtMs));
    expect(left(await limiter.decide(caller, windows))).toEqual([296, 9_996]);
  });

  test("a gateway states the counts of 1,000 callers in 5 calls, which change nothing there", async () => {
    const callers = Array.from({ length: 1_000 }, newCaller);
    const gateway = await startGateway();
    await Promise.all(callers.map((caller) => gateway.limiter.decide(caller, windows)));
    for (const caller of callers.slice(0, 10)) await ask(0, caller);
    const counts = () =>
      Promise.all(callers.map((caller) => gateway.redis.hgetallBuffer(`petstore:counts:1:${caller}`)));
    const [before, callsBefore] = [await counts(), await calls()];
    await gateway.limiter.stateCounts();
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
          clockOffsetMs += forwardMs;
          const name = names[caller]!;
          const of = quotaWindows({ perMinute, perDay: 12 });
          const decision = await ask(gateway, name, of);
          // The model goes by the ends that the decision shows, so that both see the same windows.
          const keys = decision.windows.map(({ name: window, resetAtMs }) => `${name} ${window} ${resetAtMs}`);
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

  test("the script does what the rule says, for any statements, clock steps and losses", async () => {
    const small = fc.nat(12);
    const step = fc.record({
      gateway: fc.constantFrom("g1", "g2", "g3"),
      wanted: fc.nat(6),
      limits: fc.constantFrom([5, 30], [20, 25], [8, 8]),
      counts: fc.tuple(
        ...lengthsMs.map(() => fc.record({ late: fc.nat(4), own: small, alone: small, synced: small, others: small })),
      ),
      forwardMs: fc.constantFrom(0, 0, 0, 1_000, 40_000, 24 * hourMs, -90_000),
      isLost: fc.integer({ min: 0, max: 19 }).map((n) => n === 0),
    });
    const { redis } = gateways[0]!;
    type Client = Redis & { chargeWindows(...args: (string | number)[]): Promise<number[]> };
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const account = newCaller();
        const phaseMs = phaseOf(account);
        const indexes = (nowMs: number) => lengthsMs.map((lengthMs) => indexAt(nowMs, phaseMs, lengthMs));
        let ledger: Ledger = { totals: [], charged: new Map() };
        for (const { gateway, wanted, limits, counts, forwardMs, isLost } of steps) {
          clockOffsetMs += forwardMs;
          if (isLost) ledger = { totals: [], charged: new Map() };
          if (isLost) await redis.del(`petstore:counts:1:${account}`);
          const atMs = indexes(now());
          const statement: StatedCounts = {
            gateway,
            wanted,
            limits,
            // Some are about another window.
            counts: counts.map(({ late, ...count }, w) => ({ ...count, index: atMs[w]! - (late === 0 ? 1 : 0) })),
          };
          const args = statement.counts.flatMap(({ index, own, alone, synced, others }, w) => {
            return [limits[w]!, index, own, alone, synced, others];
          });
          const key = `petstore:counts:1:${account}`;
          const fixed = [clockOffsetMs, gateway, phaseMs, wanted];
          const [nowMs, ...answer] = await (redis as Client).chargeWindows(1, key, ...fixed, ...args);
          const { admitted: expected, windows: of } = charge(ledger, indexes(nowMs!), statement);
          expect(answer).toEqual([expected, ...of.flatMap(({ others, charged }) => [others, charged])]);
        }
      }),
      { numRuns: 60 },
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

  /** Sends 20 requests every 20 ms while `disturb` runs. @returns the decisions and the longest wait */
  async function underLoad(caller: string, disturb: () => Promise<void>, of = windows) {
    using clock = new LoopClock();
    const decisions: Decision[] = [];
    let longestMs = 0;
    let isRunning = true;
    const load = (async () => {
      while (isRunning) {
        const startedMs = clock.nowMs;
        const burst = Array.from({ length: 20 }, async (_, i) => {
          decisions.push(await ask(i, caller, of));
          longestMs = Math.max(longestMs, clock.nowMs - startedMs);
        });
        await Promise.all([...burst, new Promise((resolve) => setTimeout(resolve, 20))]);
      }
    })();
    await disturb();
    isRunning = false;
    await load;
    return { decisions, longestMs };
  }

  const outages: [string, () => Promise<void>][] = [
    [
      "killed and restarted without its data",
      async () => {
        await server.kill("SIGKILL");
        await until(() => gateways.every(({ changes }) => changes.at(-1) === true));
        await server.restart();
      },
    ],
    [
      "frozen",
      async () => {
        await server.kill("SIGSTOP");
        await until(() => gateways.every(({ changes }) => changes.at(-1) === true));
        await server.kill("SIGCONT");
      },
    ],
  ];

  test.each(outages)(
    "while Redis is %s every request is decided, and at most twice the limit is admitted",
    async (_how, outage) => {
      const caller = newCaller();
      for (const { changes } of gateways) changes.length = 0;
      const { decisions, longestMs } = await underLoad(caller, async () => {
        await outage();
        await backAgain();
      });
      const after = await Promise.all(Array.from({ length: 600 }, (_, i) => ask(i, caller)));
      const total = admitted([...decisions, ...after]).length;
      // One burst was under way when Redis froze: it was decided without Redis, and Redis charges it too.
      expect(total).toBeGreaterThanOrEqual(300 - 20);
      expect(total).toBeLessThanOrEqual(600);
      expect(longestMs).toBeLessThan(450); // 250 ms, and time for the bursts themselves
      expect(gateways.map(({ changes }) => changes)).toEqual([
        [true, false],
        [true, false],
        [true, false],
      ]);
    },
  );

  test("what each gateway admitted while Redis was away counts for all when it is back", async () => {
    const caller = newCaller();
    await server.kill("SIGKILL");
    const alone = await Promise.all(Array.from({ length: 600 }, (_, i) => ask(i, caller)));
    expect(admitted(alone)).toHaveLength(300); // a third for each
    await server.restart();
    await backAgain();
    const decisions: Decision[] = [];
    for (let i = 0; i < 50; i++) decisions.push(await ask(0, caller)); // after its first answer it knows of the others
    expect(admitted(decisions)).toHaveLength(0);
  });

  test.each(outages)(
    "after Redis was %s each caller has exactly its limit once all gateways have spoken",
    async (_how, outage) => {
      const [caller, limit] = [newCaller(), 3_000];
      const of = quotaWindows({ perMinute: limit, perDay: 100_000 });
      for (const { changes } of gateways) changes.length = 0;
      const { decisions } = await underLoad(
        caller,
        async () => {
          await outage();
          await backAgain();
        },
        of,
      );
      const before = admitted(decisions).length;
      expect(before).toBe(decisions.length); // nobody has reached a share
      const after = await Promise.all(Array.from({ length: 3 * limit }, (_, i) => ask(i, caller, of)));
      expect(before + admitted(after).length).toBe(limit);
    },
  );

  test("a caller gets no second share while its first one is on the way to a frozen Redis", async () => {
    const [caller, other] = [newCaller(), newCaller()];
    const { limiter, memory, breaker } = gateways[0]!;
    for (let i = 0; i < 70; i++) memory.decide(caller, windows);
    await server.kill("SIGSTOP");
    const first = ask(0, other);
    const stated = limiter.stateCounts();
    const waiting = Array.from({ length: 50 }, () => ask(0, caller));
    await first;
    expect(breaker.isOpen).toBe(true);
    const decisions = await Promise.all([...waiting, ...Array.from({ length: 50 }, () => ask(0, caller))]);
    expect(admitted(decisions)).toHaveLength(30);
    await stated;
    await server.kill("SIGCONT");
    await backAgain();
    // Redis may have charged the requests that it got while it was frozen: they are left for this gateway.
    for (let i = 0; i < 300; i++) decisions.push(await ask(i, caller));
    expect(70 + admitted(decisions).length).toBe(300);
  });

  test("a look is answered from memory while Redis is away", async () => {
    const caller = newCaller();
    for (let i = 0; i < 30; i++) await ask(0, caller);
    await server.kill("SIGKILL");
    expect(left(await look(0, caller))[0]).toBe(90); // a third of what is left
    await server.restart();
    await backAgain();
    expect(left(await look(1, caller))[0]).toBe(270);
  });

  test("requests admitted while Redis was away are charged to their own windows, not to later ones", async () => {
    const caller = newCaller();
    await server.kill("SIGKILL");
    for (let i = 0; i < 30; i++) expect((await ask(0, caller)).admitted).toBe(true);
    await server.restart();
    await backAgain();
    clockOffsetMs += hourMs; // the minute is over, the day is not
    expect(left(await ask(1, caller))[0]).toBe(299);
    expect(left(await ask(0, caller))).toEqual([298, 10_000 - 32]);
  });

  test("refusals count for 60 seconds from their beginning, also after Redis's clock was set back", async () => {
    const share = shareRefusals(gateways[0]!.redis, gateways[0]!.breaker, () => clockOffsetMs);
    const key = newCaller();
    const refuse = async (count: number, laterMs: number) => {
      clockOffsetMs += laterMs;
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
