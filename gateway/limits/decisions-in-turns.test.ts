import type { Redis } from "ioredis";
import { answersPerTurn } from "../../runtime/shared-read.ts";
import { MemoryWindows } from "./memory-windows.ts";
import { Breaker } from "./redis-breaker.ts";
import { RedisWindows } from "./redis-windows.ts";
import { accountWindows } from "./windows.ts";

const windows = accountWindows({ perMinute: 10_000, perDay: 10_000 });
const nowMs = 1_000_000;

/** What a Redis without other gateways answers: it admits all that is wanted. */
async function admitAll(accounts: number, ...keysAndArguments: readonly number[]): Promise<number[]> {
  const reports = keysAndArguments.slice(accounts + 1);
  const length = reports.length / accounts;
  const answers = Array.from({ length: accounts }, (_, i) => {
    const [, , wanted = 0, , , ofMinute = 0, , , , , , ofDay = 0] = reports.slice(i * length);
    return [wanted, 0, ofMinute + wanted, 0, ofDay + wanted];
  });
  return [nowMs, ...answers.flat()];
}

/** A limiter over a Redis that answers like this, and the turn of the event loop in which each decision came. */
function setUp(chargeWindows: typeof admitAll) {
  const memory = new MemoryWindows({ maxAccounts: 10_000, gatewayCount: 1, now: () => nowMs, elapsedMs: () => 0 });
  const breaker = new Breaker({ probe: async () => {}, probeIntervalMs: 1_000_000, onChange: () => {} });
  const redis = { defineCommand: () => {}, chargeWindows } as unknown as Redis;
  const limiter = new RedisWindows({ redis, memory, breaker });
  let turn = 0;
  let counting = setImmediate(function count() {
    turn += 1;
    counting = setImmediate(count);
  });
  const ask = async (account: string) => ({ ...(await limiter.charge(account, windows)), turn });
  const close = () => {
    clearImmediate(counting);
    breaker.end();
  };
  return { limiter, breaker, memory, ask, close };
}

test.each([
  ["the answer of Redis", admitAll],
  ["the loss of Redis", () => Promise.reject(new Error("Redis is away"))],
])("the requests of a batch go on over several turns of the event loop after %s", async (_, chargeWindows) => {
  const { ask, close } = setUp(chargeWindows);
  const decisions = await Promise.all(Array.from({ length: 3_000 }, (_, i) => ask(`acc_${i < 2_000 ? 0 : i}`)));
  close();
  const byTurn = Map.groupBy(decisions, ({ turn }) => turn);
  expect(Math.max(...Array.from(byTurn.values(), ({ length }) => length))).toBe(answersPerTurn);
  const ofFirst = decisions.slice(0, 2_000).map(({ states }) => states[0]!.remaining);
  expect(ofFirst).toEqual(Array.from({ length: 2_000 }, (_, i) => 9_999 - i));
});

test("a breaker that opens while decisions are given out takes none back and charges none twice", async () => {
  const { limiter, breaker, ask, close } = setUp(admitAll);
  const decisions = await Promise.all(
    Array.from({ length: 1_000 }, async (_, i) => {
      const { admitted } = await ask("acc_1");
      if (i === 0) breaker.open("acc_1", new Error("Redis is away"));
      return admitted;
    }),
  );
  close();
  expect(decisions).toEqual(Array(1_000).fill(true));
  expect(limiter.readLocal("acc_1", windows).states[0]).toMatchObject({ used: 1_000, remaining: 9_000 });
});

test("requests that waited behind a call without an answer count as admitted alone", async () => {
  const called = Promise.withResolvers<void>();
  const { breaker, memory, ask, close } = setUp(() => {
    called.resolve();
    return new Promise(() => {});
  });
  const first = ask("acc_1");
  await called.promise;
  const waiting = Array.from({ length: 10 }, () => ask("acc_1"));
  breaker.open("acc_1", new Error("no answer"));
  await Promise.all([first, ...waiting]);
  close();
  expect(memory.countsOf("acc_1").minute).toMatchObject({ own: 11, alone: 10 });
});
