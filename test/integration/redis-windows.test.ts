import fc from "fast-check";
import type { Redis } from "ioredis";
import { MemoryWindows } from "../../gateway/limits/memory-windows.ts";
import { quotaWindows } from "../../gateway/limits/plan-windows.ts";
import { type Count, charge, type Decision, type Window } from "../../gateway/limits/windows.ts";
import { Breaker } from "../../gateway/redis/breaker.ts";
import { connectRedis } from "../../gateway/redis/connection.ts";
import { RedisWindows } from "../../gateway/redis/redis-windows.ts";
import { shareRefusals } from "../../gateway/redis/shared-refusals.ts";
import { suiteStack } from "../support/cleanup.ts";
import { LoopClock } from "../support/loop-clock.ts";
import { type RedisServer, startRedisServer } from "../support/redis-server.ts";
import { until } from "../support/until.ts";

interface Replica {
  readonly limiter: RedisWindows;
  readonly redis: Redis;
  readonly changes: boolean[];
}

const windows = quotaWindows({ perMinute: 300, perDay: 10_000 });

describe("windows on Redis", () => {
  const stack = suiteStack();
  let server: RedisServer;
  let replicas: Replica[];
  let clockOffsetMs = 0;
  let callers = 0;
  const newCaller = () => `caller-${++callers}`;

  /** Starts the part of a gateway replica that decides limits. */
  async function startReplica(replicaCount: number): Promise<Replica> {
    const redis = connectRedis(server.url) as Redis;
    redis.on("error", () => {});
    const changes: boolean[] = [];
    const breaker = new Breaker({
      probe: () => redis.ping(),
      probeIntervalMs: 50,
      onChange: (isOpen) => {
        changes.push(isOpen);
        if (!isOpen) void limiter.report();
      },
    });
    const now = () => Date.now() + clockOffsetMs;
    const memory = new MemoryWindows({ maxCallers: 10_000, replicas: replicaCount, now });
    stack.defer(() => {
      breaker.close();
      redis.disconnect();
    });
    const limiter = new RedisWindows({ redis, memory, breaker, clockOffsetMs: () => clockOffsetMs });
    while (redis.status !== "ready") await new Promise((resolve) => redis.once("ready", resolve));
    return {
      limiter,
      redis,
      changes,
    };
  }

  beforeAll(async () => {
    server = await startRedisServer();
    stack.defer(() => server.stop());
    replicas = await Promise.all([startReplica(3), startReplica(3), startReplica(3)]);
  });

  const ask = (replica: number, caller: string, of: readonly Window[] = windows) =>
    replicas[replica % replicas.length]!.limiter.decide(caller, of);
  const admitted = (decisions: readonly Decision[]) => decisions.filter((decision) => decision.admitted);
  const left = ({ windows: states }: Decision) => states.map(({ remaining }) => remaining);
  const calls = async () => {
    const stats = await replicas[0]!.redis.info("commandstats");
    return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
  };
  const backAgain = async () => {
    for (const { redis, changes, limiter } of replicas) {
      await until(() => redis.status === "ready" && changes.at(-1) !== true);
      await limiter.report();
    }
  };

  test("three replicas admit exactly the limit, and no two requests see the same count", async () => {
    const caller = newCaller();
    const decisions: Decision[] = [];
    for (let round = 0; round < 10; round++) {
      decisions.push(...(await Promise.all(Array.from({ length: 64 }, (_, i) => ask(i, caller)))));
    }
    expect(admitted(decisions)).toHaveLength(300);
    expect(new Set(admitted(decisions).map((decision) => left(decision)[0])).size).toBe(300);
  });

  test("requests of one turn of the event loop share a call to Redis, and those of a refused caller need none", async () => {
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
    const { limiter, changes } = replicas[0]!;
    const decided = limiter.decide(caller, windows);
    await new Promise(setImmediate); // the command has been sent, and nothing has been read since
    for (const untilMs = performance.now() + 500; performance.now() < untilMs; );
    expect(left(await decided)).toEqual([299, 9_999]);
    expect(changes).toEqual([]);
    expect(left(await ask(1, caller))).toEqual([298, 9_998]);
  });

  test("a look charges nothing, begins no window, and sees what every replica has charged before it", async () => {
    const caller = newCaller();
    const look = (replica: number) => replicas[replica]!.limiter.look(caller, windows);
    for (const replica of [0, 1, 2]) expect(left(await look(replica))).toEqual([300, 10_000]);
    clockOffsetMs += 30_000;
    const first = await ask(0, caller);
    expect(first.windows.map(({ resetAtMs }) => resetAtMs - first.nowMs)).toEqual([60_000, 86_400_000]);
    for (let i = 0; i < 10; i++) await ask(1, caller);
    for (const replica of [0, 1, 2]) expect(left(await look(replica))).toEqual([289, 9_989]);
    // In one call with charges, in the order of arrival.
    const together = await Promise.all([ask(0, caller), look(0), ask(0, caller), look(0)]);
    expect(together.map(left)).toEqual([
      [288, 9_988],
      [288, 9_988],
      [287, 9_987],
      [287, 9_987],
    ]);
    for (let i = 0; i < 300; i++) await ask(2, caller);
    for (const replica of [0, 2]) expect(left(await look(replica))).toEqual([0, 9_700]);
  });

  test("a flood of 10,000 requests that the minute refuses charges nothing to the day", async () => {
    const caller = newCaller();
    const small = quotaWindows({ perMinute: 10, perDay: 1_000 });
    for (let round = 0; round < 100; round++) {
      await Promise.all(Array.from({ length: 101 }, (_, i) => ask(i, caller, small)));
    }
    expect(left(await ask(0, caller, small))).toEqual([0, 990]);
    // A replica that knows nothing of the caller asks Redis.
    const other = await startReplica(3);
    expect(left(await other.limiter.decide(caller, small))).toEqual([0, 990]);
  });

  test("a caller with an exhausted day sees the minute as it is now, not as it was at the first refusal", async () => {
    const caller = newCaller();
    const spent = quotaWindows({ perMinute: 5, perDay: 2 });
    for (let i = 0; i < 2; i++) expect((await ask(0, caller, spent)).admitted).toBe(true);
    expect(left(await ask(0, caller, spent))).toEqual([3, 0]);
    clockOffsetMs += 61_000;
    const later = await ask(0, caller, spent);
    expect(later.admitted).toBe(false);
    expect(left(later)).toEqual([5, 0]);
    expect(later.windows[0]!.resetAtMs).toBe(later.nowMs + 60_000);
  });

  test("a caller is not refused for longer than a window when the clock of Redis is set back by an hour", async () => {
    const caller = newCaller();
    const few = quotaWindows({ perMinute: 5, perDay: 1_000 });
    for (let i = 0; i < 5; i++) expect((await ask(0, caller, few)).admitted).toBe(true);
    clockOffsetMs -= 3_600_000;
    for (const replica of [0, 1, 0]) {
      const decision = await ask(replica, caller, few);
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

  test("a Redis that has lost the latest counts of a window gets them back from a replica that knows them", async () => {
    const caller = newCaller();
    const { redis } = replicas[0]!;
    await ask(0, caller);
    const older = (await redis.get(`petstore:limits:${caller}`))!;
    for (let i = 0; i < 9; i++) await ask(0, caller);
    await redis.set(`petstore:limits:${caller}`, older, "KEEPTTL");
    expect(left(await ask(0, caller))).toEqual([289, 9_989]);
    expect(left(await ask(1, caller))).toEqual([288, 9_988]);
  });

  test("a window that Redis began again after it lost its data is joined to the one that two replicas know, which are counted once", async () => {
    const caller = newCaller();
    const first = await ask(0, caller);
    for (let i = 0; i < 5; i++) await ask(0, caller);
    for (let i = 0; i < 2; i++) await ask(2, caller);
    await replicas[0]!.redis.flushall();
    clockOffsetMs += 10_000;
    for (let i = 0; i < 4; i++) await ask(1, caller); // this replica has not seen the caller before
    // 8 before, and 4 of the new window.
    expect(left(await ask(2, caller))).toEqual([287, 9_987]);
    expect(left(await ask(0, caller))).toEqual([286, 9_986]);
    const last = await ask(1, caller);
    expect(left(last)).toEqual([285, 9_985]);
    expect(last.windows.map(({ resetAtMs }) => resetAtMs)).toEqual(first.windows.map(({ resetAtMs }) => resetAtMs));
    clockOffsetMs += 50_000; // the minute that began first is over
    expect(left(await ask(1, caller))).toEqual([299, 9_984]);
  });

  test.each(["asks", "reports"])(
    "a window that was joined to an older one is not charged to the next one by a replica that did not hear of it and %s",
    async (how) => {
      const caller = newCaller();
      const hourMs = 3_600_000;
      const { limiter, redis } = replicas[1]!;
      const used = async () => (await replicas[0]!.limiter.look(caller, windows)).windows[1]!.used;
      await ask(0, caller);
      clockOffsetMs += 23 * hourMs;
      await redis.flushall();
      for (let i = 0; i < 5; i++) await ask(1, caller);
      await replicas[0]!.limiter.report();
      expect(await used()).toBe(6);
      // The key outlives the older window: the replica knows its own one for a day.
      expect(await redis.pttl(`petstore:limits:${caller}`)).toBeGreaterThan(23 * hourMs);
      clockOffsetMs += 2 * hourMs;
      expect((await ask(0, caller)).windows[1]!.used).toBe(1);
      if (how === "asks") await limiter.look(caller, windows);
      else await limiter.report();
      expect(await used()).toBe(1);
    },
  );

  test("what a replica admitted alone in a window that was joined to an older one is charged once", async () => {
    const caller = newCaller();
    const nowMs = () => Date.now() + clockOffsetMs;
    const { redis } = replicas[1]!;
    const memory = new MemoryWindows({ maxCallers: 10, replicas: 3, now: nowMs });
    const breaker = new Breaker({ probe: () => redis.ping(), probeIntervalMs: 50, onChange: () => {} });
    const limiter = new RedisWindows({ redis, memory, breaker, clockOffsetMs: () => clockOffsetMs });
    await ask(0, caller);
    clockOffsetMs += 10_000;
    await redis.flushall();
    for (let i = 0; i < 5; i++) await limiter.decide(caller, windows);
    for (let i = 0; i < 3; i++) await memory.decide(caller, windows);
    expect(left(await ask(0, caller))).toEqual([293, 9_993]);
    expect(left(await limiter.decide(caller, windows))).toEqual([289, 9_989]);
    expect(left(await limiter.decide(caller, windows))).toEqual([288, 9_988]);
  });

  test("a replica that admitted requests alone by a clock that is behind does not end the windows of Redis earlier", async () => {
    const caller = newCaller();
    const { windows: known } = await ask(0, caller);
    const memory = new MemoryWindows({ maxCallers: 10, replicas: 3, now: () => Date.now() + clockOffsetMs - 30_000 });
    for (let i = 0; i < 5; i++) await memory.decide(caller, windows);
    const { redis } = replicas[0]!;
    const breaker = new Breaker({ probe: () => redis.ping(), probeIntervalMs: 50, onChange: () => {} });
    const limiter = new RedisWindows({ redis, memory, breaker, clockOffsetMs: () => clockOffsetMs });
    const decision = await limiter.decide(caller, windows);
    expect(left(decision)).toEqual([293, 9_993]);
    expect(decision.windows.map(({ resetAtMs }) => resetAtMs)).toEqual(known.map(({ resetAtMs }) => resetAtMs));
  });

  test("a replica reports 1,000 callers in 5 calls, which change no count that Redis has", async () => {
    const callers = Array.from({ length: 1_000 }, newCaller);
    const replica = await startReplica(3);
    await Promise.all(callers.map((caller) => replica.limiter.decide(caller, windows)));
    for (const caller of callers.slice(0, 10)) await ask(0, caller);
    const counts = () => replica.redis.mget(callers.map((caller) => `petstore:limits:${caller}`));
    const [before, callsBefore] = [await counts(), await calls()];
    await replica.limiter.report();
    expect((await calls()) - callsBefore).toBe(5);
    expect(await counts()).toEqual(before);
  });

  test("any sequence of requests, clock steps and replicas agrees with a plain model", async () => {
    const step = fc.record({
      replica: fc.nat(2),
      caller: fc.nat(2),
      forwardMs: fc.oneof({ weight: 5, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max: 90_000 })),
      perMinute: fc.constantFrom(3, 5),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const names = [newCaller(), newCaller(), newCaller()];
        const model = new Map<string, readonly Count[]>();
        for (const { replica, caller, forwardMs, perMinute } of steps) {
          clockOffsetMs += forwardMs;
          const name = names[caller]!;
          const of = quotaWindows({ perMinute, perDay: 12 });
          const decision = await ask(replica, name, of);
          // The model uses the time of the decision, so that both see the same windows.
          const expected = charge(model.get(name), of, 1, decision.nowMs);
          model.set(name, expected.counts);
          expect(decision.admitted).toBe(expected.decision.admitted);
          if (decision.admitted) expect(left(decision)).toEqual(left(expected.decision));
        }
      }),
      { numRuns: 30 },
    );
  });

  test("FLUSHALL loses no request that the replicas have counted", async () => {
    const caller = newCaller();
    for (let i = 0; i < 120; i++) await ask(i, caller);
    await replicas[0]!.redis.flushall();
    const decisions = await Promise.all(Array.from({ length: 400 }, (_, i) => ask(i, caller)));
    expect(120 + admitted(decisions).length).toBeLessThanOrEqual(303);
    expect(120 + admitted(decisions).length).toBeGreaterThanOrEqual(300);
  });

  /** Sends 20 requests every 20 ms while `disturb` runs. @returns the decisions and the longest wait */
  async function underLoad(caller: string, disturb: () => Promise<void>) {
    using clock = new LoopClock();
    const decisions: Decision[] = [];
    let longestMs = 0;
    let isRunning = true;
    const load = (async () => {
      while (isRunning) {
        const startedMs = clock.nowMs;
        const burst = Array.from({ length: 20 }, async (_, i) => {
          decisions.push(await ask(i, caller));
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
        await until(() => replicas.every(({ changes }) => changes.at(-1) === true));
        await server.restart();
      },
    ],
    [
      "frozen",
      async () => {
        await server.kill("SIGSTOP");
        await until(() => replicas.every(({ changes }) => changes.at(-1) === true));
        await server.kill("SIGCONT");
      },
    ],
  ];

  test.each(outages)(
    "while Redis is %s every request is decided, and at most twice the limit is admitted",
    async (_how, outage) => {
      const caller = newCaller();
      for (const { changes } of replicas) changes.length = 0;
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
      expect(replicas.map(({ changes }) => changes)).toEqual([
        [true, false],
        [true, false],
        [true, false],
      ]);
    },
  );

  test("what each replica admitted while Redis was away counts for all when it is back, also of replicas that are quiet", async () => {
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

  test("a caller gets no second share while the report of its first one is on its way to a frozen Redis", async () => {
    const [caller, other] = [newCaller(), newCaller()];
    const { redis } = replicas[0]!;
    const memory = new MemoryWindows({ maxCallers: 10, replicas: 3, now: () => Date.now() + clockOffsetMs });
    const breaker = new Breaker({ probe: () => redis.ping(), probeIntervalMs: 50, onChange: () => {} });
    const limiter = new RedisWindows({ redis, memory, breaker, clockOffsetMs: () => clockOffsetMs });
    for (let i = 0; i < 70; i++) await memory.decide(caller, windows);
    await server.kill("SIGSTOP");
    const first = limiter.decide(other, windows);
    await new Promise((resolve) => setTimeout(resolve, 20)); // so it is given up before the report
    const reported = limiter.report();
    await first;
    expect(breaker.isOpen).toBe(true);
    const decisions = await Promise.all(Array.from({ length: 100 }, () => limiter.decide(caller, windows)));
    expect(admitted(decisions)).toHaveLength(30);
    await reported;
    expect(memory.takeUnsent(caller)).toMatchObject([{ unsent: 100 }, { unsent: 100 }]);
    breaker.close();
    await server.kill("SIGCONT");
    await backAgain();
  });

  test("a look is answered from memory while Redis is away", async () => {
    const caller = newCaller();
    for (let i = 0; i < 30; i++) await ask(0, caller);
    await server.kill("SIGKILL");
    expect(left(await replicas[0]!.limiter.look(caller, windows))[0]).toBe(90); // a third of what is left
    await server.restart();
    await backAgain();
    expect(left(await replicas[1]!.limiter.look(caller, windows))[0]).toBe(270);
  });

  test("requests admitted while Redis was away are charged to their own windows, not to later ones", async () => {
    const caller = newCaller();
    await server.kill("SIGKILL");
    for (let i = 0; i < 30; i++) expect((await ask(0, caller)).admitted).toBe(true);
    await server.restart();
    await backAgain();
    clockOffsetMs += 3_600_000; // the minute is over, the day is not
    expect(left(await ask(1, caller))[0]).toBe(299);
    expect(left(await ask(0, caller))).toEqual([298, 10_000 - 32]);
  });

  test("refusals count for 60 seconds, whenever they began, also after the clock of Redis was set back", async () => {
    const share = shareRefusals(replicas[0]!.redis, () => clockOffsetMs);
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
