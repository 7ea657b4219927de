// Gateways that decide limits over one Redis, with a clock that a test moves.
import type { Redis } from "ioredis";
import { MemoryWindows } from "../../gateway/limits/memory-windows.ts";
import { Breaker } from "../../gateway/limits/redis-breaker.ts";
import { connectRedis } from "../../gateway/limits/redis-connection.ts";
import { RedisWindows } from "../../gateway/limits/redis-windows.ts";
import type { Decision, Window, WindowsNow } from "../../gateway/limits/windows.ts";
import { accountWindows } from "../../gateway/limits/windows.ts";
import { newAccountToday } from "./accounts.ts";
import { type RedisServer, startRedisServer } from "./redis-server.ts";
import type { Stack } from "./stack.ts";
import { until } from "./until.ts";

interface Gateway {
  readonly limiter: RedisWindows;
  readonly memory: MemoryWindows;
  readonly breaker: Breaker;
  readonly redis: Redis;
  readonly changes: boolean[];
}

export const windows = accountWindows({ perMinute: 300, perDay: 10_000 });
export const hourMs = 3_600_000;
export const admitted = (decisions: readonly Decision[]) => decisions.filter((decision) => decision.admitted);
export const left = ({ states }: WindowsNow) => states.map(({ remaining }) => remaining);

/**
 * Starts a Redis and three gateways before the tests of a suite, and closes them after it. Call it in a `describe`.
 * @returns the gateways, what asks them, and the clock of Redis and all gateways, which a test may move
 */
export function threeGateways(stack: Stack) {
  const clock = { offsetMs: 0 };
  const gateways: Gateway[] = [];
  let server: RedisServer;
  const now = () => Date.now() + clock.offsetMs;
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
        if (!isOpen) void limiter.reportCounts();
      },
    });
    const memory = new MemoryWindows({ maxAccounts: 10_000, gatewayCount: 3, now, elapsedMs: now });
    stack.defer(() => {
      breaker.end();
      redis.disconnect();
    });
    const limiter = new RedisWindows({ redis, memory, breaker, clockOffsetMs: () => clock.offsetMs });
    while (redis.status !== "ready") await new Promise((resolve) => redis.once("ready", resolve));
    return { limiter, memory, breaker, redis, changes };
  }

  beforeAll(async () => {
    server = await startRedisServer();
    stack.defer(() => server.stop());
    gateways.push(...(await Promise.all([startGateway(), startGateway(), startGateway()])));
  });

  const ask = async (gateway: number, caller: string, of: readonly Window[] = windows) =>
    gateways[gateway % gateways.length]!.limiter.charge(caller, of);
  const look = async (gateway: number, caller: string) => gateways[gateway]!.limiter.readShared(caller, windows);
  const calls = async () => {
    const stats = await gateways[0]!.redis.info("commandstats");
    return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
  };
  const backAgain = async () => {
    for (const { redis, changes, limiter } of gateways) {
      await until(() => redis.status === "ready" && changes.at(-1) !== true);
      await limiter.reportCounts();
    }
  };

  return {
    clock,
    gateways,
    server: () => server,
    startGateway,
    now,
    newCaller,
    ask,
    look,
    calls,
    backAgain,
  };
}
