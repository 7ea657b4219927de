// Measures changes over gRPC: `npm run bench -- --only grpc`.
import { randomUUID } from "node:crypto";
import { openInventoryChannel } from "../../client/channel.ts";
import { callUnary, type UnaryMethod } from "../../client/grpc-calls.ts";
import { createInventoryClient } from "../../client/index.ts";
import { startProcess } from "../support/processes.ts";
import type { Plan } from "./list.ts";
import { cpuMsOf, type Figures, medians } from "./measure.ts";
import { type BenchServers, startOurs } from "./systems.ts";

/** The figures of one way to change entries over gRPC, from one process to one or two services on one database. */
export interface GrpcRow {
  readonly way: string;
  readonly services: number;
  readonly atOnce: number;
  readonly figures: Figures;
}

const entries = 10_000;
const timeoutMs = 10_000;

/**
 * Measures changes over gRPC: a call for each update, and updates and adjustments of the client, which share messages.
 */
export async function benchGrpc(servers: BenchServers, plan: Plan): Promise<GrpcRow[]> {
  await using stack = new AsyncDisposableStack();
  const { system, processes } = await startOurs(stack, servers, entries);
  const second = await startProcess({
    name: "inventory-svc",
    script: "inventory-svc/main.ts",
    env: {
      LOG_LEVEL: "warn",
      INVENTORY_LISTEN: "127.0.0.1:0",
      INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
      INVENTORY_DATABASE_URL: system.databaseUrls.inventory,
    },
  });
  stack.defer(async () => void (await second.stop()));
  const addresses = [system.inventory.listen, second.listen];

  plan.say(`Changes over gRPC, medians of ${plan.rounds} runs of ${plan.seconds} s; CPU in ms for each change`);
  const heading = [
    "way",
    "services",
    "at once",
    "changes/s",
    "p50 ms",
    "p99 ms",
    "caller CPU",
    "service CPU",
    "errors",
  ];
  plan.say(heading.map((text) => text.padStart(13)).join(""));
  const pids = { caller: process.pid, service: processes.service!, second: second.pid };
  const ways = [1, 2].flatMap((services) =>
    openWays(addresses.slice(0, services)).map((way) => ({ ...way, services })),
  );
  for (const { change } of ways) await load(change, 64, 5, pids); // so that V8 has compiled the code
  const rows: GrpcRow[] = [];
  for (const atOnce of [64, 256]) {
    const runs = ways.map((way) => ({ ...way, figures: [] as Figures[] }));
    for (let round = 0; round < plan.rounds; round++) {
      for (const { change, figures } of runs) figures.push(await load(change, atOnce, plan.seconds, pids));
    }
    for (const { name, services, figures } of runs) {
      const row = { way: name, services, atOnce, figures: medians(figures) };
      rows.push(row);
      plan.say(line(row));
    }
  }
  for (const way of ways) way.close();
  return rows;
}

interface Way {
  readonly name: string;
  readonly change: (petId: bigint, quantity: number) => Promise<unknown>;
  readonly close: () => void;
}

function openWays(addresses: readonly string[]): Way[] {
  const address = `ipv4:${addresses.join(",")}`;
  const channel = openInventoryChannel({ address });
  const client = createInventoryClient({ address, timeoutMs });
  return [
    {
      name: "call",
      change: (petId, quantity) => {
        const update = { petId, quantity, expectedRevisions: [] };
        const method: UnaryMethod<typeof update, unknown> = channel.updateInventory.bind(channel);
        return callUnary(method, update, { timeoutMs });
      },
      close: () => channel.close(),
    },
    { name: "update", change: (petId, quantity) => client.update({ petId, quantity }), close: () => {} },
    {
      name: "adjust",
      change: (petId) => client.adjust({ petId, delta: 1, requestId: randomUUID() }),
      close: () => client.close(),
    },
  ];
}

/** Changes random entries for `seconds`, with `atOnce` changes under way. */
async function load(
  change: Way["change"],
  atOnce: number,
  seconds: number,
  pids: Readonly<Record<string, number>>,
): Promise<Figures> {
  const durationsMs: number[] = [];
  let errors = 0;
  const names = Object.keys(pids);
  const before = names.map((name) => cpuMsOf(pids[name]!));
  const startedMs = performance.now();
  const untilMs = startedMs + seconds * 1_000;
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (let sentMs = performance.now(); sentMs < untilMs; sentMs = performance.now()) {
        const petId = BigInt(1 + Math.floor(Math.random() * entries));
        await change(petId, Math.floor(Math.random() * 1e9)).catch(() => errors++);
        durationsMs.push(performance.now() - sentMs);
      }
    }),
  );
  const tookSeconds = (performance.now() - startedMs) / 1_000;
  durationsMs.sort((a, b) => a - b);
  const count = durationsMs.length;
  return {
    requestsPerSecond: count / tookSeconds,
    p50Ms: durationsMs[Math.floor(count * 0.5)]!,
    p99Ms: durationsMs[Math.floor(count * 0.99)]!,
    errors,
    cpuMs: Object.fromEntries(names.map((name, i) => [name, (cpuMsOf(pids[name]!) - before[i]!) / count])),
  };
}

function line({ way, services, atOnce, figures }: GrpcRow): string {
  const { requestsPerSecond, p50Ms, p99Ms, errors, cpuMs } = figures;
  return [
    way,
    services,
    atOnce,
    requestsPerSecond.toFixed(0),
    p50Ms.toFixed(1),
    p99Ms.toFixed(1),
    cpuMs.caller!.toFixed(4),
    (cpuMs.service! + cpuMs.second!).toFixed(4),
    errors,
  ]
    .map((value) => String(value).padStart(13))
    .join("");
}
