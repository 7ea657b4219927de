// Measures single updates and updates of 100 pets: `npm run bench -- --only public`.
import { join } from "node:path";
import type { Plan } from "./list.ts";
import { type Figures, measure, medians } from "./measure.ts";
import { type BenchServers, startOurs } from "./systems.ts";

/** What changes cost when they are sent alone, and a hundred at a time. */
export interface BulkRow {
  readonly way: string;
  /** Changes in each request. */
  readonly changes: number;
  readonly figures: Figures;
}

const entries = 10_000;

const ways = [
  { way: "PATCH", script: "patch.lua", changes: 1, connections: 64 },
  { way: "updates of 100", script: "bulk.lua", changes: 100, connections: 16 },
];

/** Measures changes for each CPU second of the gateway: single PATCHes, and POST /v1/inventory/updates of 100. */
export async function benchBulk(servers: BenchServers, plan: Plan): Promise<BulkRow[]> {
  await using stack = new AsyncDisposableStack();
  const { address, headers, processes } = await startOurs(stack, servers, entries);
  plan.say(`Updates of random pets, medians of ${plan.rounds} runs of ${plan.seconds} s`);
  plan.say(["", "changes/s", "per gateway CPU s", "per service CPU s", "p99 ms", "errors"].map(cell).join(""));
  const wanted = { ...headers, "Content-Type": "application/json" };
  const runs = ways.map((): Figures[] => []);
  // The first round only warms up.
  for (let round = 0; round <= plan.rounds; round++) {
    for (const [i, { script, connections }] of ways.entries()) {
      const path = join(import.meta.dirname, script);
      const load = { address, connections, seconds: plan.seconds, headers: wanted, script: path };
      const figures = await measure({ ...load, args: [String(entries)] }, processes);
      if (round > 0) runs[i]!.push(figures);
      await new Promise((resolve) => setTimeout(resolve, 700)); // a backlog must not slow the next run
    }
  }
  return ways.map(({ way, changes }, i) => {
    const row = { way, changes, figures: medians(runs[i]!) };
    plan.say(line(row));
    return row;
  });
}

/** Changes for each CPU second of a process. */
function changesPerCpuSecond({ changes, figures }: BulkRow, process: string): number {
  return (changes * 1_000) / figures.cpuMs[process]!;
}

function line(row: BulkRow): string {
  const { way, changes, figures } = row;
  return [
    way,
    (figures.requestsPerSecond * changes).toFixed(0),
    changesPerCpuSecond(row, "gateway").toFixed(0),
    changesPerCpuSecond(row, "service").toFixed(0),
    figures.p99Ms.toFixed(1),
    figures.errors,
  ]
    .map(cell)
    .join("");
}

function cell(value: string | number): string {
  return String(value).padStart(19);
}
