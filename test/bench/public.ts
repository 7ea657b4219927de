import { Agent, Pool, request } from "undici";
import { until } from "../support/until.ts";
import type { Plan } from "./list.ts";
import { cpuMsOf, type Figures, measure, median, medians, memoryMiB, peakMemoryMiB } from "./measure.ts";
import { type BenchServers, startOurs, type Variant } from "./systems.ts";

/** The figures of one kind of read at one size of the stock. */
export interface PublicRow {
  readonly size: number;
  readonly read: string;
  /** Length of the body. */
  readonly bytes: number;
  readonly figures: Figures;
}

/** What held requests take. */
export interface HeldRow {
  readonly held: number;
  /** Resident memory of the gateway before, with them, and at most. */
  readonly memoryMiB: { readonly before: number; readonly held: number; readonly peak: number };
  /** Share of a core that the gateway uses while nothing changes. */
  readonly idleCpu: number;
  /** From the acknowledgement of a change to the first, median and last answer. */
  readonly toldMs: { readonly first: number; readonly median: number; readonly last: number };
}

const sizes = [10_000, 100_000];
const changed = [0, 10, 1_000];
const connections = 32;
const heldRequests = 10_000;
/** Requests that are sent at once until all are held; an overload would refuse more of them. */
const heldAtOnce = 250;
/** So long they may take to arrive: on a slow machine the first waits, of 90 s, would end before the last ones begin. */
const holdingMs = 50_000;

/** Measures the reads of one entry and of changes beside those of a list of 10 entries, and what held requests take. */
export async function benchPublic(servers: BenchServers, plan: Plan): Promise<(PublicRow | HeldRow)[]> {
  plan.say(`Reads beside the list, medians of ${plan.rounds} runs of ${plan.seconds} s; CPU in ms for each request`);
  plan.say(["entries", "read", "bytes", "req/s", "p99 ms", "gateway CPU", "errors"].map(padded).join(""));
  const rows: PublicRow[] = [];
  for (const [size, reads] of [[10, []], ...sizes.map((each) => [each, changed] as const)] as const) {
    await using stack = new AsyncDisposableStack();
    const ours = await startOurs(stack, servers, size);
    if (reads.length === 0) rows.push(await measureRead(ours, plan, size, "list", "/v1/inventory"));
    else rows.push(await measureRead(ours, plan, size, "one entry", `/v1/inventory/${size / 2}`));
    for (const count of reads) {
      const since = await etagOfList(ours);
      await changeSome(ours, size, count);
      const path = `/v1/inventory/changes?since=${since.slice(1, -1)}`;
      rows.push(await measureRead(ours, plan, size, `${count} changes`, path));
    }
  }
  return [...rows, await measureHeld(servers, plan)];
}

async function measureRead(ours: Variant, plan: Plan, size: number, read: string, path: string): Promise<PublicRow> {
  const { address, headers, processes } = ours;
  const answer = await request(`http://${address}${path}`, { headers });
  const bytes = (await answer.body.arrayBuffer()).byteLength;
  const load = { address, connections, headers, args: [path] };
  await measure({ ...load, seconds: 2 * plan.seconds }, processes); // so that V8 has compiled the code
  const runs: Figures[] = [];
  for (let round = 0; round < plan.rounds; round++) {
    runs.push(await measure({ ...load, seconds: plan.seconds }, processes));
  }
  const figures = medians(runs);
  const values = [figures.requestsPerSecond.toFixed(0), figures.p99Ms.toFixed(1), figures.cpuMs.gateway!.toFixed(4)];
  plan.say([size, read, bytes, ...values, figures.errors].map(padded).join(""));
  return { size, read, bytes, figures };
}

async function etagOfList({ address, headers }: Variant): Promise<string> {
  const answer = await request(`http://${address}/v1/inventory`, { method: "HEAD", headers });
  return String(answer.headers.etag);
}

/** Changes entries that are as far from each other as can be. */
async function changeSome({ address, headers }: Variant, size: number, count: number): Promise<void> {
  const pool = new Pool(`http://${address}`, { connections });
  const change = async (i: number) => {
    const path = `/v1/inventory/${1 + Math.floor((i * size) / count)}`;
    const body = JSON.stringify({ quantity: Math.floor(Math.random() * 1e9) });
    const more = { "content-type": "application/json" };
    await (await pool.request({ method: "PATCH", path, headers: { ...headers, ...more }, body })).body.dump();
  };
  await Promise.all(Array.from({ length: count }, (_, i) => change(i)));
  await pool.close();
}

async function measureHeld(servers: BenchServers, plan: Plan): Promise<HeldRow> {
  await using stack = new AsyncDisposableStack();
  const ours = await startOurs(stack, servers, sizes[0]!);
  const { admin, pid } = ours.system.gateways[0]!;
  const path = `/v1/inventory/changes?since=${(await etagOfList(ours)).slice(1, -1)}`;
  const before = memoryMiB(pid);
  const agent = new Agent({ pipelining: 0, headersTimeout: 100_000 });
  stack.defer(() => agent.destroy());
  const headers = { ...ours.headers, Prefer: "wait=90" };
  const answers: Promise<number>[] = [];
  const hold = async () => {
    const { body } = await agent.request({ origin: `http://${ours.address}`, method: "GET", path, headers });
    await body.dump();
    return performance.now();
  };
  const beganMs = performance.now();
  while (answers.length < heldRequests && performance.now() - beganMs < holdingMs) {
    for (let i = 0; i < heldAtOnce; i++) answers.push(hold());
    await until(async () => (await heldNow(admin)) === answers.length, { withinMs: 30_000 });
  }
  const held = memoryMiB(pid);
  const usedMs = cpuMsOf(pid);
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  const idleCpu = (cpuMsOf(pid) - usedMs) / 5_000;
  await changeSome(ours, sizes[0]!, 1);
  const toldAtMs = performance.now();
  const told = (await Promise.all(answers)).map((ms) => ms - toldAtMs).sort((a, b) => a - b);
  const toldMs = { first: told[0]!, median: median(told), last: told.at(-1)! };
  const memory = { before, held, peak: peakMemoryMiB(pid) };
  plan.say(
    `${told.length} held requests: gateway ${before.toFixed(0)} MiB before, ${held.toFixed(0)} with them, ` +
      `${memory.peak.toFixed(0)} at most; ${(100 * idleCpu).toFixed(1)} % of a core while nothing changes; a change is ` +
      `told after ${toldMs.first.toFixed(0)} to ${toldMs.last.toFixed(0)} ms, in the median ${toldMs.median.toFixed(0)}`,
  );
  return { held: told.length, memoryMiB: memory, idleCpu, toldMs };
}

async function heldNow(admin: string): Promise<number> {
  const { body } = await request(`http://${admin}/metrics`);
  return Number(/^gateway_held_requests (\d+)$/m.exec(await body.text())?.[1]);
}

function padded(value: string | number): string {
  return String(value).padStart(14);
}
