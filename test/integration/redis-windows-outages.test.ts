import type { Decision } from "../../gateway/limits/windows.ts";
import { accountWindows } from "../../gateway/limits/windows.ts";
import { admitted, hourMs, left, threeGateways, windows } from "../support/limit-gateways.ts";
import { LoopClock } from "../support/loop-clock.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

describe("windows on a Redis that goes away", () => {
  const stack = suiteStack();
  const { clock, gateways, server, newCaller, ask, look, backAgain } = threeGateways(stack);

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
        await server().kill("SIGKILL");
        await until(() => gateways.every(({ changes }) => changes.at(-1) === true));
        await server().restart();
      },
    ],
    [
      "frozen",
      async () => {
        await server().kill("SIGSTOP");
        await until(() => gateways.every(({ changes }) => changes.at(-1) === true));
        await server().kill("SIGCONT");
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
    await server().kill("SIGKILL");
    const alone = await Promise.all(Array.from({ length: 600 }, (_, i) => ask(i, caller)));
    expect(admitted(alone)).toHaveLength(300); // a third for each
    await server().restart();
    await backAgain();
    const decisions: Decision[] = [];
    for (let i = 0; i < 50; i++) decisions.push(await ask(0, caller)); // after its first answer it knows of the others
    expect(admitted(decisions)).toHaveLength(0);
  });

  test.each(outages)(
    "after Redis was %s each caller has exactly its limit once all gateways have spoken",
    async (_how, outage) => {
      const [caller, limit] = [newCaller(), 3_000];
      const of = accountWindows({ perMinute: limit, perDay: 100_000 });
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
    for (let i = 0; i < 70; i++) memory.charge(caller, windows);
    await server().kill("SIGSTOP");
    const first = ask(0, other);
    const reported = limiter.reportCounts();
    const waiting = Array.from({ length: 50 }, () => ask(0, caller));
    await first;
    expect(breaker.isOpen).toBe(true);
    const decisions = await Promise.all([...waiting, ...Array.from({ length: 50 }, () => ask(0, caller))]);
    expect(admitted(decisions)).toHaveLength(30);
    await reported;
    await server().kill("SIGCONT");
    await backAgain();
    // Redis may have charged the requests that it got while it was frozen: they are left for this gateway.
    for (let i = 0; i < 300; i++) decisions.push(await ask(i, caller));
    expect(70 + admitted(decisions).length).toBe(300);
  });

  test("a look is answered from memory while Redis is away", async () => {
    const caller = newCaller();
    for (let i = 0; i < 30; i++) await ask(0, caller);
    await server().kill("SIGKILL");
    expect(left(await look(0, caller))[0]).toBe(90); // a third of what is left
    await server().restart();
    await backAgain();
    expect(left(await look(1, caller))[0]).toBe(270);
  });

  test("requests admitted while Redis was away are charged to their own windows, not to later ones", async () => {
    const caller = newCaller();
    await server().kill("SIGKILL");
    for (let i = 0; i < 30; i++) expect((await ask(0, caller)).admitted).toBe(true);
    await server().restart();
    await backAgain();
    clock.offsetMs += hourMs; // the minute is over, the day is not
    expect(left(await ask(1, caller))[0]).toBe(299);
    expect(left(await ask(0, caller))).toEqual([298, 10_000 - 32]);
  });
});
