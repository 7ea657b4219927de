import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import {
  AccountGuard,
  keyedUpdateLimit,
  MemoryGuardPoints,
  ownAccountLimit,
} from "../../gateway/admission/account-guard.ts";
import { accountWindows } from "../../gateway/limits/windows.ts";
import { newAccount } from "../support/accounts.ts";
import { areNoticesSent, ask, isCounting, newName, startReplica, until, windows } from "../support/redis-replicas.ts";
import { type RedisServer, startRedisServer } from "../support/redis-server.ts";

test("a guard on Redis charges nothing for what it refuses, and a smaller request passes", async () => {
  await using stack = new AsyncDisposableStack();
  const server = await startRedisServer();
  stack.defer(() => server.stop());
  const replicas = [startReplica(stack, server.url), startReplica(stack, server.url)];
  for (const replica of replicas) await until(() => isCounting(replica));
  const id = newName();
  const charge = async (replica: number, cost: number) => {
    const { admitted, states: of } = await replicas[replica]!.guards.keyedUpdates.charge(id, cost);
    return [admitted, of[0]!.remaining];
  };
  expect(await charge(0, 600)).toEqual([true, 400]);
  for (const replica of [0, 1]) expect(await charge(replica, 600)).toEqual([false, 0]);
  expect(await charge(1, 399)).toEqual([true, 1]);
  expect(await charge(0, 2)).toEqual([false, 0]);
  expect(await charge(0, 1)).toEqual([true, 0]);
  for (const replica of [0, 1]) expect(await charge(replica, 1)).toEqual([false, 0]);
});

test.each(["redis", "memory"])(
  "large requests that a guard on %s refuses keep out no small ones meanwhile",
  async (kind) => {
    await using stack = new AsyncDisposableStack();
    const server = await startRedisServer();
    stack.defer(() => server.stop());
    const replica = startReplica(stack, server.url);
    await until(() => isCounting(replica));
    const alone = new AccountGuard(keyedUpdateLimit(1_000), new MemoryGuardPoints(keyedUpdateLimit(1_000)), () => {});
    const guard = kind === "redis" ? replica.guards.keyedUpdates : alone;
    const id = newName();
    await guard.charge(id, 950);
    const costs = Array.from({ length: 70 }, (_, i) => (i % 7 === 3 ? 1 : 100));
    const decisions = await Promise.all(costs.map((cost) => guard.charge(id, cost)));
    expect(decisions.map(({ admitted }) => admitted)).toEqual(costs.map((cost) => cost === 1));
  },
);

describe("a guard of accounts when a clock is set back", () => {
  const { jest } = import.meta;
  const realNow = Date.now;
  afterEach(() => void jest.restoreAllMocks());
  const setBack = (ms: number) => void jest.spyOn(Date, "now").mockImplementation(() => realNow() - ms);

  /** Starts two replicas, and has an account use up its limit. */
  async function exhaust(stack: AsyncDisposableStack) {
    const server = await startRedisServer();
    stack.defer(() => server.stop());
    const replicas = [startReplica(stack, server.url), startReplica(stack, server.url)] as const;
    for (const replica of replicas) await until(() => isCounting(replica));
    const id = newName();
    const ask = async (replica: number) => {
      const { admitted, nowMs, states: of } = await replicas[replica]!.guards.ownAccount.charge(id);
      expect(of[0]!.resetAtMs - nowMs).toBeGreaterThan(0);
      expect(of[0]!.resetAtMs - nowMs).toBeLessThanOrEqual(60_000);
      return admitted;
    };
    for (let i = 0; i <= 60; i++) expect(await ask(0)).toBe(i < 60);
    return { server, id, ask };
  }

  test("that of a gateway: the account is refused by both gateways until its window ends", async () => {
    await using stack = new AsyncDisposableStack();
    const { ask } = await exhaust(stack);
    setBack(20_000);
    expect([await ask(0), await ask(1), await ask(0)]).toEqual([false, false, false]);
  });

  test("that of a gateway without Redis: the account is refused, and the gateway goes on", async () => {
    await using stack = new AsyncDisposableStack();
    const { server, ask } = await exhaust(stack);
    await server.kill("SIGKILL");
    setBack(20_000);
    const { consume } = RateLimiterRedis.prototype;
    let asked = 0;
    jest.spyOn(RateLimiterRedis.prototype, "consume").mockImplementation(function (this: RateLimiterRedis, ...args) {
      asked += 1;
      if (asked > 100) throw new Error("it asks for ever"); // and no timer, such as that of the test, ever fires
      return consume.apply(this, args);
    });
    expect(await ask(0)).toBe(false);
    expect(asked).toBeLessThanOrEqual(1);
  });

  test("that of Redis by an hour: the window begins again", async () => {
    await using stack = new AsyncDisposableStack();
    const { server, id, ask } = await exhaust(stack);
    const admin = new Redis(server.url);
    stack.defer(() => admin.disconnect());
    expect(await admin.pexpire(`${ownAccountLimit.keyPrefix}:${id}`, 3_600_000)).toBe(1);
    expect(await ask(1)).toBe(true);
    expect(await admin.pttl(`${ownAccountLimit.keyPrefix}:${id}`)).toBeLessThanOrEqual(60_000);
  });
});

test("a Redis that went away while nobody asked is logged with what its address answers now", async () => {
  await using stack = new AsyncDisposableStack();
  const server = await startRedisServer();
  stack.defer(() => server.stop());
  const replica = startReplica(stack, server.url);
  await until(async () => (await ask(replica, newAccount())).states[0]!.remaining === 49);
  replica.reasons.length = 0;
  await server.kill("SIGKILL");
  await delay(500); // time to be refused a new connection
  await ask(replica, newAccount());
  expect(replica.reasons).toEqual([expect.stringContaining("ECONNREFUSED")]);
});

test("a Redis that loses its data twice has the counts again before a new gateway is asked", async () => {
  await using stack = new AsyncDisposableStack();
  const server = await startRedisServer();
  stack.defer(() => server.stop());
  const replicas = Array.from({ length: 3 }, () => startReplica(stack, server.url));
  const caller = newAccount();
  const few = accountWindows({ perMinute: 1_000, perDay: 12 });
  const admitted: number[] = [];
  for (const { limiter } of replicas) {
    await until(async () => (await limiter.readShared(caller, few)).states[1]!.remaining === 12 - (admitted[0] ?? 0));
    const decisions = await Promise.all(Array.from({ length: 16 }, () => limiter.charge(caller, few)));
    admitted.push(decisions.filter((decision) => decision.admitted).length);
    await server.restart();
    await until(() => isCountedBy(server, caller));
  }
  expect(admitted).toEqual([12, 0, 0]);
});

test("a frozen Redis delays all that use it by one time-out, and after that nothing", async () => {
  await using stack = new AsyncDisposableStack();
  const server = await startRedisServer();
  stack.defer(() => server.stop());
  const replica = startReplica(stack, server.url);
  const { limiter, guards, shareStrikes } = replica;
  await until(() => isCounting(replica));
  const useAll = () => [
    Promise.resolve(limiter.charge(newAccount(), windows)),
    Promise.resolve(limiter.readShared(newAccount(), windows)),
    guards.ownAccount.charge(newName()),
    guards.rotations.charge(newName()),
    guards.keyedUpdates.charge(newName(), 100),
    shareStrikes!(new Map([[newName(), 1]]), 30),
  ];
  await server.kill("SIGSTOP");
  const waiting = useAll();
  await delay(150);
  const later = useAll();
  await Promise.race(waiting);
  const turns = async () => {
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
    return "waits";
  };
  const all = Promise.all([...waiting, ...later, ...useAll()]);
  expect(await Promise.race([all, turns()])).not.toBe("waits");
  replica.invalidate("not sent");
  await server.kill("SIGCONT");
  await until(async () => (await isCounting(replica)) && (await areNoticesSent([replica, replica])));
});
/** Whether a server has the counts of a caller. */
async function isCountedBy({ url }: RedisServer, caller: string): Promise<boolean> {
  const client = new Redis(url);
  const found = await client.exists(`petstore:counts:1:${caller}`);
  client.disconnect();
  return found === 1;
}
