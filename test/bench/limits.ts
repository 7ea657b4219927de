// Measures what key, limits and headers cost: `npm run bench -- --only limits`.
import { generated } from "../../inventory-svc/cli/entries.ts";
import { startProcess } from "../support/processes.ts";
import { startSystem } from "../support/system.ts";
import type { Plan } from "./list.ts";
import { type Figures, measure, medians } from "./measure.ts";
import type { BenchServers, Variant } from "./systems.ts";

/** Kinds of admission: of every request, by limits in memory, by limits on Redis. */
const kinds = ["open", "memory", "redis"] as const;
type Kind = (typeof kinds)[number];

/** The figures of GET of a small list at one number of connections. */
export interface LimitRow extends Readonly<Record<Kind, Figures>> {
  readonly connections: number;
}

const entries = 10;

/** Measures what the check of the key and the limits cost: the difference to a gateway that does neither. */
export async function benchLimits(servers: BenchServers, plan: Plan): Promise<LimitRow[]> {
  await using stack = new AsyncDisposableStack();
  const variants = await startVariants(stack, servers);
  plan.say(
    `Key check and limits at GET /v1/inventory of ${entries} entries, medians of ${plan.rounds} runs of ${plan.seconds} s; CPU in ms for each request`,
  );
  plan.say(
    ["connections", "admission", "req/s", "p99 ms", "gateway CPU", "of it: checks", "share", "Redis CPU", "errors"]
      .map((text) => text.padStart(13))
      .join(""),
  );
  const rows: LimitRow[] = [];
  for (const connections of [8, 64]) {
    const runs: Record<Kind, Figures[]> = { open: [], memory: [], redis: [] };
    // The first round only warms the gateways up.
    for (let round = 0; round <= plan.rounds; round++) {
      for (const kind of kinds) {
        const { address, headers, processes } = variants[kind];
        const figures = await measure({ address, connections, seconds: plan.seconds, headers }, processes);
        if (round > 0) runs[kind].push(figures);
        await new Promise((resolve) => setTimeout(resolve, 300));
      }
    }
    const row = {
      connections,
      open: medians(runs.open),
      memory: medians(runs.memory),
      redis: medians(runs.redis),
    };
    rows.push(row);
    for (const kind of kinds) plan.say(line(row, kind));
  }
  return rows;
}

async function startVariants(
  stack: AsyncDisposableStack,
  { redisUrl, redisPid }: BenchServers,
): Promise<Record<Kind, Variant>> {
  const env = { LOG_LEVEL: "warn" };
  const system = await startSystem({
    database: "mysql",
    seed: await Array.fromAsync(generated(entries)),
    gateways: 0,
    gatewayEnv: env,
    inventoryEnv: env,
  });
  stack.defer(() => system.close());
  const memory = await system.startGateway();
  const redis = await system.startGateway({ REDIS_URL: redisUrl });
  const open = await startProcess({
    name: "open gateway",
    script: "test/bench/open-gateway.ts",
    env: { ...system.gatewayEnv },
  });
  stack.defer(async () => void (await open.stop()));
  const headers = { Authorization: `Bearer ${system.keys.enterprise}` };
  const variant = ({ listen, pid }: typeof open, more: Record<string, number> = {}): Variant => ({
    address: listen,
    headers,
    processes: { gateway: pid, ...more },
  });
  return { open: variant(open), memory: variant(memory), redis: variant(redis, { redis: redisPid }) };
}

function line(row: LimitRow, kind: Kind): string {
  const { requestsPerSecond, p99Ms, cpuMs, errors } = row[kind];
  const checksMs = cpuMs.gateway! - row.open.cpuMs.gateway!;
  return [
    row.connections,
    kind,
    requestsPerSecond.toFixed(0),
    p99Ms.toFixed(1),
    cpuMs.gateway!.toFixed(4),
    checksMs.toFixed(4),
    `${((100 * checksMs) / cpuMs.gateway!).toFixed(0)} %`,
    (cpuMs.redis ?? 0).toFixed(4),
    errors,
  ]
    .map((value) => String(value).padStart(13))
    .join("");
}
