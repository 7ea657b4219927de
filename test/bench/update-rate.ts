// Measures PATCH on each variant: `npm run bench -- --only updates`.
import { join } from "node:path";
import type { Plan } from "./list.ts";
import { type Figures, measure, medians } from "./measure.ts";
import { type BenchServers, startOurs, startPlain } from "./systems.ts";

/** The figures of PATCH at one number of connections. */
export interface UpdateRow {
  readonly connections: number;
  readonly ours: Figures;
  readonly plain: Figures;
}

const entries = 10_000;

/** Measures PATCH /v1/inventory/{petId} of random pets, on a database that writes every commit to its disk. */
export async function benchUpdates(servers: BenchServers, plan: Plan): Promise<UpdateRow[]> {
  await using stack = new AsyncDisposableStack();
  const variants = { ours: await startOurs(stack, servers, entries), plain: await startPlain(stack, servers, entries) };
  plan.say(
    `PATCH /v1/inventory/{petId}, medians of ${plan.rounds} runs of ${plan.seconds} s; CPU in ms for each request`,
  );
  plan.say(
    ["connections", "req/s", "plain", "×", "p99 ms", "plain", "gateway CPU", "plain", "service CPU", "plain", "errors"]
      .map((t) => t.padStart(12))
      .join(""),
  );
  const run = async (name: keyof typeof variants, connections: number, seconds: number) => {
    const { address, headers, processes } = variants[name];
    const script = join(import.meta.dirname, "patch.lua");
    const wanted = { ...headers, "Content-Type": "application/json" };
    const load = { address, connections, seconds, headers: wanted, script, args: [String(entries)] };
    const figures = await measure(load, processes);
    await new Promise((resolve) => setTimeout(resolve, 700));
    return figures;
  };
  // Warms both up: at one connection, V8 would compile the code, and each entry be written once, only after minutes.
  for (const name of ["ours", "plain"] as const) await run(name, 64, 5);
  const rows: UpdateRow[] = [];
  for (const connections of [1, 16, 64, 256]) {
    const runs: Record<keyof typeof variants, Figures[]> = { ours: [], plain: [] };
    // The first round only warms them up, as in limits.ts.
    for (let round = 0; round <= plan.rounds; round++) {
      for (const name of ["ours", "plain"] as const) {
        const figures = await run(name, connections, plan.seconds);
        if (round > 0) runs[name].push(figures);
      }
    }
    const row = { connections, ours: medians(runs.ours), plain: medians(runs.plain) };
    rows.push(row);
    plan.say(line(row));
  }
  return rows;
}

function line({ connections, ours, plain }: UpdateRow): string {
  return [
    connections,
    ours.requestsPerSecond.toFixed(0),
    plain.requestsPerSecond.toFixed(0),
    (ours.requestsPerSecond / plain.requestsPerSecond).toFixed(1),
    ours.p99Ms.toFixed(1),
    plain.p99Ms.toFixed(1),
    ours.cpuMs.gateway!.toFixed(4),
    plain.cpuMs.gateway!.toFixed(3),
    ours.cpuMs.service!.toFixed(4),
    plain.cpuMs.service!.toFixed(3),
    ours.errors + plain.errors,
  ]
    .map((value) => String(value).padStart(12))
    .join("");
}
