import type { Redis } from "ioredis";
import { lengthsMs, phaseMsOf } from "./limit-rule.ts";
import { MemoryWindows } from "./memory-windows.ts";
import { Breaker } from "./redis-breaker.ts";
import { RedisWindows } from "./redis-windows.ts";
import { accountWindows } from "./windows.ts";

test("a request that finds its window spent is refused, also when the window ends at that moment", async () => {
  const id = "acc_1";
  const endMs = 1_000 * lengthsMs[0] - phaseMsOf(id);
  const clock = [endMs - 1];
  const now = () => (clock.length > 1 ? clock.shift()! : clock[0]!);
  const memory = new MemoryWindows({ maxAccounts: 10, gatewayCount: 1, now });
  const breaker = new Breaker({ probe: async () => {}, probeIntervalMs: 1_000, onChange: () => {} });
  const redis = { defineCommand: () => {} } as unknown as Redis; // a request that is refused from memory asks nothing
  const limiter = new RedisWindows({ redis, memory, breaker });
  const charges = { others: 0, charged: 50 };
  memory.learn(memory.countsOf(id), endMs - 1, { admittedCount: 50, charges: [charges, charges] });
  clock.push(endMs);
  expect(await limiter.charge(id, accountWindows({ perMinute: 50, perDay: 1_000 }))).toMatchObject({ admitted: false });
});
