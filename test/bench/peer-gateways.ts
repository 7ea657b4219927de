// Measures ours beside the least a machine can do, and beside other gateways: `npm run bench -- --only peers`.
import { join } from "node:path";
import { request } from "undici";
import type { Plan } from "./list.ts";
import { type Figures, measure, medians } from "./measure.ts";
import { startFloors, startPeers } from "./peers/start-peers.ts";
import { type BenchServers, startOurs, startPlain, type Variant } from "./systems.ts";

/** The figures of one variant under one load. CPU is that of the process that the requests enter by. */
export interface PeerRow {
  readonly load: string;
  readonly variant: string;
  readonly figures: Figures;
}

const loads = [
  { load: "GET 10", method: "GET", size: 10, connections: 32 },
  { load: "GET 10,000", method: "GET", size: 10_000, connections: 32 },
  { load: "PATCH", method: "PATCH", size: 10_000, connections: 64 },
] as const;

/** Measures each load on the floors, the peers, plain and ours, in turns. */
export async function benchPeers(servers: BenchServers, plan: Plan): Promise<PeerRow[]> {
  plan.say(`Peers, medians of ${plan.rounds} runs of ${plan.seconds} s; CPU in ms of the entrance for each request`);
  plan.say(["load", "variant", "req/s", "p99 ms", "CPU", "ours req/s ×", "ours CPU ÷", "errors"].map(padded).join(""));
  const rows: PeerRow[] = [];
  for (const load of loads) {
    await using stack = new AsyncDisposableStack();
    const ours = await startOurs(stack, servers, load.size);
    const plain = await startPlain(stack, servers, load.size);
    const body = await answerOf(ours, load.method);
    const variants: Record<string, Variant> = {
      ...(await startFloors(stack, body)),
      ...(await startPeers(stack, plain.service, plan.say)),
      plain,
      ours,
    };
    const runs = Object.fromEntries(Object.keys(variants).map((name) => [name, [] as Figures[]]));
    // The first round only warms up.
    for (let round = 0; round <= plan.rounds; round++) {
      for (const [name, { address, processes, ...variant }] of Object.entries(variants)) {
        const { connections } = load;
        const patch = { script: join(import.meta.dirname, "patch.lua"), args: [String(load.size)] };
        const headers = { ...variant.headers, ...(load.method === "PATCH" && { "Content-Type": "application/json" }) };
        const wanted = { address, connections, seconds: plan.seconds, headers };
        const figures = await measure(load.method === "PATCH" ? { ...wanted, ...patch } : wanted, processes);
        if (round > 0) runs[name]!.push(figures);
        // The backlog of a slow variant would spoil the next one's figures.
        await new Promise((resolve) => setTimeout(resolve, 700));
      }
    }
    const own = medians(runs.ours!);
    for (const [variant, ofOne] of Object.entries(runs)) {
      const row = { load: load.load, variant, figures: medians(ofOne) };
      rows.push(row);
      plan.say(line(row, own));
    }
  }
  return rows;
}

/** Returns the bytes that ours answers, which the floors write. */
async function answerOf({ address, headers }: Variant, method: "GET" | "PATCH"): Promise<Buffer> {
  const url = `http://${address}/v1/inventory`;
  const { body } =
    method === "GET"
      ? await request(url, { headers })
      : await request(`${url}/1`, {
          method,
          headers: { ...headers, "content-type": "application/json" },
          body: '{"quantity":1000000}',
        });
  return Buffer.from(await body.arrayBuffer());
}

function line({ load, variant, figures }: PeerRow, ours: Figures): string {
  return [
    load,
    variant,
    figures.requestsPerSecond.toFixed(0),
    figures.p99Ms.toFixed(1),
    figures.cpuMs.gateway!.toFixed(4),
    (ours.requestsPerSecond / figures.requestsPerSecond).toFixed(2),
    (ours.cpuMs.gateway! / figures.cpuMs.gateway!).toFixed(2),
    figures.errors,
  ]
    .map(padded)
    .join("");
}

const padded = (value: unknown) => String(value).padStart(13);
