import fc from "fast-check";
import type { Redis } from "ioredis";
import { newAccountToday } from "../../test/support/accounts.ts";
import { type RedisServer, startRedisServer } from "../../test/support/redis-server.ts";
import { suiteStack } from "../../test/support/stack.ts";
import { type CountReport, indexAt, type KeptCounts, lengthsMs, mergeReport, phaseMsOf } from "./limit-rule.ts";
import { answerOf, argumentsOf, chargeScript } from "./limit-rule-lua.ts";
import { connectRedis } from "./redis-connection.ts";

const stack = suiteStack();
let server: RedisServer;

beforeAll(async () => {
  server = await startRedisServer();
  stack.defer(() => server.stop());
});

const small = fc.nat(12);
const step = fc.record({
  gateway: fc.constantFrom("g1", "g2", "g3"),
  wanted: fc.nat(6),
  limits: fc.constantFrom([5, 30], [20, 25], [8, 8]),
  counts: fc.tuple(
    ...lengthsMs.map(() => fc.record({ late: fc.nat(4), own: small, alone: small, synced: small, others: small })),
  ),
  forwardMs: fc.constantFrom(0, 0, 0, 1_000, 40_000, 86_400_000, -90_000),
  isLost: fc.integer({ min: 0, max: 19 }).map((n) => n === 0),
});

test("the rule in Lua answers as the one in TypeScript: any reports, clock steps and losses", async () => {
  type Client = Redis & { chargeWindows(...args: (string | number)[]): Promise<number[]> };
  const redis = connectRedis(server.url) as Client;
  stack.defer(() => redis.disconnect());
  redis.defineCommand("chargeWindows", { lua: chargeScript });
  while (redis.status !== "ready") await new Promise((resolve) => redis.once("ready", resolve));
  let offsetMs = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const account = newAccountToday(Date.now() + offsetMs);
      const phaseMs = phaseMsOf(account);
      const indexes = (nowMs: number) => lengthsMs.map((lengthMs) => indexAt(nowMs, phaseMs, lengthMs));
      let kept: KeptCounts = { totals: [], chargesByGateway: new Map() };
      for (const { gateway, wanted, limits, counts, forwardMs, isLost } of steps) {
        offsetMs += forwardMs;
        if (isLost) kept = { totals: [], chargesByGateway: new Map() };
        if (isLost) await redis.del(account);
        const atMs = indexes(Date.now() + offsetMs);
        const report: CountReport = {
          countsName: gateway,
          wanted,
          limits,
          // Some are about another window.
          counts: counts.map(({ late, ...count }, w) => ({ ...count, index: atMs[w]! - (late === 0 ? 1 : 0) })),
        };
        const answer = await redis.chargeWindows(1, account, offsetMs, ...argumentsOf(report, phaseMs));
        expect(answer).toHaveLength(2 + 2 * lengthsMs.length);
        expect(answerOf(answer, 0)).toEqual(mergeReport(kept, indexes(answer[0]!), report));
      }
    }),
    { numRuns: 60 },
  );
});
