// Measures what the number of entries costs: `npm run bench -- --only sizes`.
import { request } from "undici";
import type { Plan } from "./list.ts";
import { type Figures, measure, median, medians, memoryMiB, peakMemoryMiB } from "./measure.ts";
import { type BenchServers, startOurs } from "./systems.ts";

/** What a stock of one size takes. */
export interface SizeRow {
  readonly entries: number;
  /** From the start of a gateway's process until it is ready. */
  readonly readyMs: number;
  /** Resident memory of a gateway once it is ready, and at most until it has sent the list. */
  readonly memoryMiB: { readonly ready: number; readonly peak: number };
  readonly serviceMiB: number;
  /** The first list that a gateway sends, from the request to its last byte. */
  readonly firstListMs: number;
  readonly listBytes: number;
  readonly figures: Readonly<Record<"list" | "one entry" | "update", Figures>>;
  /** From the start of eight gateways together until the last one is ready; undefined where it was not measured. */
  readonly eightReadyMs?: number;
}

const sizes = [10_000, 100_000, 1_000_000, 3_000_000];
const sizeOfEight = 1_000_000;
const eight = 8;
const starts = 3;

/** Measures starts, memory, lists and updates of stocks of up to three million entries. */
export async function benchSizes(servers: BenchServers, plan: Plan): Promise<SizeRow[]> {
  plan.say(`Stocks by their size: medians of ${starts} starts, of ${plan.rounds} runs of ${plan.seconds} s`);
  plan.say(
    "entries, ready ms, MiB ready, MiB peak, service MiB, first list ms, list MB, list/s, one entry/s, update/s, eight ready ms",
  );
  const rows: SizeRow[] = [];
  for (const entries of sizes) {
    const row = await measureSize(servers, plan, entries);
    rows.push(row);
    const rates = Object.values(row.figures).map((figures) =>
      figures.requestsPerSecond.toFixed(figures.requestsPerSecond < 10 ? 2 : 0),
    );
    const { ready, peak } = row.memoryMiB;
    const values = [row.readyMs, ready, peak, row.serviceMiB, row.firstListMs].map((value) => value.toFixed(0));
    plan.say(
      [entries, ...values, (row.listBytes / 1e6).toFixed(1), ...rates, row.eightReadyMs?.toFixed(0) ?? "-"].join(", "),
    );
  }
  return rows;
}

async function measureSize(servers: BenchServers, plan: Plan, entries: number): Promise<SizeRow> {
  await using stack = new AsyncDisposableStack();
  const ours = await startOurs(stack, servers, entries);
  const { system, headers, processes } = ours;
  const started: { readyMs: number; ready: number; peak: number; firstListMs: number; listBytes: number }[] = [];
  for (let i = 0; i < starts; i++) {
    const startMs = performance.now();
    const gateway = await system.startGateway();
    const readyMs = performance.now() - startMs;
    const ready = memoryMiB(gateway.pid);
    const askedMs = performance.now();
    const answer = await request(`http://${gateway.listen}/v1/inventory`, { headers });
    let listBytes = 0;
    for await (const chunk of answer.body) listBytes += chunk.length;
    const firstListMs = performance.now() - askedMs;
    started.push({ readyMs, ready, peak: peakMemoryMiB(gateway.pid), firstListMs, listBytes });
    await gateway.stop();
  }
  const of = (name: keyof (typeof started)[number]) => median(started.map((each) => each[name]));
  const figures = {
    list: await run(entries > 100_000 ? 4 : 32, {}),
    "one entry": await run(32, { args: [`/v1/inventory/${entries / 2}`] }),
    update: await run(64, { script: scriptOf("patch.lua"), args: [String(entries)] }),
  };
  const serviceMiB = memoryMiB(system.inventory.pid);
  const eightReadyMs = entries === sizeOfEight ? await startEight() : undefined;
  return {
    entries,
    readyMs: of("readyMs"),
    memoryMiB: { ready: of("ready"), peak: of("peak") },
    serviceMiB,
    firstListMs: of("firstListMs"),
    listBytes: of("listBytes"),
    figures,
    ...(eightReadyMs !== undefined && { eightReadyMs }),
  };

  async function run(connections: number, load: { script?: string; args?: string[] }): Promise<Figures> {
    const more = { ...headers, "Content-Type": "application/json" };
    const runs: Figures[] = [];
    for (let round = 0; round <= plan.rounds; round++) {
      const found = await measure(
        { ...load, address: ours.address, connections, seconds: plan.seconds, headers: more },
        processes,
      );
      if (round > 0) runs.push(found);
    }
    return medians(runs);
  }

  async function startEight(): Promise<number> {
    const startMs = performance.now();
    const gateways = await Promise.all(Array.from({ length: eight }, () => system.startGateway()));
    const tookMs = performance.now() - startMs;
    for (const gateway of gateways) await gateway.stop();
    return tookMs;
  }
}

const scriptOf = (name: string) => new URL(name, import.meta.url).pathname;
