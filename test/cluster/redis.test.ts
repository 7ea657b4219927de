import calculateSlot from "cluster-key-slot";
import { pino } from "pino";
import { Registry } from "prom-client";
import { MemoryWindows } from "../../gateway/limits/memory-windows.ts";
import { quotaWindows } from "../../gateway/limits/plan-windows.ts";
import { type Replicas, redisReplicas } from "../../gateway/redis/replicas.ts";
import type { Stack } from "../support/cleanup.ts";
import { startRedisCluster, startRedisSentinel } from "../support/redis-deployments.ts";
import type { RedisServer } from "../support/redis-server.ts";
import { until } from "../support/until.ts";

/** `npm run test:cluster` runs the long version. */
const isLong = process.env.FAULTS === "long";
const gateways = 3;
const limit = 3_000;
const windows = quotaWindows({ perMinute: limit, perDay: 1_000_000 });

interface Deployment {
  readonly url: string;
  /** The master of the callers. */
  readonly master: RedisServer;
  /** Makes its replica the master, by plan. */
  failOver(): Promise<void>;
}

const deployments: Record<string, (stack: Stack) => Promise<Deployment>> = {
  Sentinel: async (stack) => {
    const { servers, ...rest } = await startRedisSentinel(stack, "secret");
    return { ...rest, master: servers[0] };
  },
  "Redis Cluster": async (stack) => {
    const { nodes, ...rest } = await startRedisCluster(stack, { withReplicas: true });
    return { ...rest, master: nodes[0]! };
  },
};

interface Fault {
  /** Requests that each gateway gets in ten milliseconds. Many spend everything as soon as one may. */
  readonly demand: number;
  run(deployment: Deployment): Promise<void>;
}

const faults: Record<string, Fault> = {
  frozen: { demand: 30, run: ({ master }) => master.kill("SIGSTOP") },
  killed: { demand: 30, run: ({ master }) => master.kill("SIGKILL") },
  "switched by plan": { demand: 3, run: ({ failOver }) => failOver() },
};

const rounds = Object.keys(deployments).flatMap((deployment) =>
  Object.keys(faults).map((fault) => [deployment, fault] as const),
);

test.each(isLong ? rounds : rounds.filter(([, fault]) => fault === "frozen"))(
  "%s gives an account at most its limit and, for each gateway but one, a share of what was left when its master was %s",
  async (deployment, fault) => {
    const results = [];
    for (let i = 0; i < (isLong ? 8 : 1); i++) results.push(await runRound(deployments[deployment]!, faults[fault]!));
    console.info(deployment, fault);
    console.table(results);
    for (const { admitted, bound } of results) {
      expect(admitted).toBeGreaterThan(0.9 * limit);
      expect(admitted).toBeLessThanOrEqual(bound);
    }
  },
  600_000,
);

/**
 * Asks for one account at three gateways at once, before, while and after its master fails, until all refuse.
 *
 * @returns `early`: requests that a gateway admitted over Redis while another one still decided alone
 */
async function runRound(start: (stack: Stack) => Promise<Deployment>, fault: Fault) {
  await using stack = new AsyncDisposableStack();
  const deployment = await start(stack);
  const replicas = Array.from({ length: gateways }, () => startReplica(stack, deployment.url));
  await until(() => isExact(replicas), { withinMs: 20_000, everyMs: 50 });
  const caller = newCaller();
  const counts = replicas.map(() => ({ admitted: 0, refused: 0 }));
  let early = 0;
  const total = () => counts.reduce((sum, { admitted }) => sum + admitted, 0);
  const timer = setInterval(() => {
    for (const [i, { limiter }] of replicas.entries()) {
      for (let n = 0; n < fault.demand; n++) {
        void limiter.decide(caller, windows).then(({ admitted }) => {
          counts[i]![admitted ? "admitted" : "refused"] += 1;
          if (admitted && !replicas[i]!.isAlone() && replicas.some((other) => other.isAlone())) early += 1;
        });
      }
    }
  }, 10);
  stack.defer(async () => clearInterval(timer));
  await until(() => total() >= limit / 3, { everyMs: 1 });
  const left = limit - total();
  const startedMs = performance.now();
  await fault.run(deployment);
  await until(() => isExact(replicas), { withinMs: 20_000, everyMs: 50 });
  const backMs = Math.round(performance.now() - startedMs);
  for (const count of counts) count.refused = 0;
  await until(() => counts.every(({ refused }) => refused > 100), { withinMs: 20_000 });
  return {
    admitted: total(),
    bound: limit + (gateways - 1) * Math.ceil(left / gateways),
    early,
    backMs,
  };
}

/** The part of a gateway that uses Redis, and whether it decides alone. */
function startReplica(stack: Stack, redisUrl: string): Replicas & { isAlone(): boolean } {
  let latest = "";
  const write = (line: string) => {
    latest = line;
  };
  const log = pino({}, { write });
  const memory = new MemoryWindows({ maxCallers: 10_000, replicas: gateways, now: Date.now });
  const replicas = redisReplicas({ redisUrl, count: gateways, memory, log, metrics: new Registry() });
  stack.defer(() => replicas.close());
  return { ...replicas, isAlone: () => latest.includes("Redis is away") };
}

/** Whether each replica counts what the others admit. */
async function isExact(replicas: readonly Replicas[]): Promise<boolean> {
  const caller = newCaller();
  const left: number[] = [];
  for (const { limiter } of replicas) left.push((await limiter.decide(caller, windows)).windows[0]!.remaining);
  return left.every((remaining, i) => remaining === limit - 1 - i);
}

let names = 0;

/** A name whose counts are on the first master of a cluster. */
function newCaller(): string {
  for (;;) {
    const name = `caller-${++names}`;
    if (calculateSlot(`petstore:limits:${name}`) < 5_461) return name;
  }
}
