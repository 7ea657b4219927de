// Measures the other reads of the public API, and held requests: `npm run bench -- --only public`.
import { connect, type Socket } from "node:net";
import { Pool, request } from "undici";
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
const path = "/v1/inventory";
const connections = 32;
const heldRequests = 10_000;
/** Requests that are sent at once until all are held; an overload would refuse more of them. */
const heldAtOnce = 250;
/** Time for them to arrive: on a slow machine the first waits, of 90 s, would end before the last ones begin. */
const holdingMs = 50_000;

/** Measures the reads of one entry and of changes beside those of the list, and what held requests take. */
export async function benchPublic(servers: BenchServers, plan: Plan): Promise<(PublicRow | HeldRow)[]> {
  plan.say(`Reads beside the list, medians of ${plan.rounds} runs of ${plan.seconds} s; CPU in ms for each request`);
  plan.say(
    ["entries", "read", "bytes", "req/s", "p99 ms", "gateway CPU", "÷ the first", "errors"].map(padded).join(""),
  );
  const rows: PublicRow[] = [];
  for (const size of [10, ...sizes]) {
    await using stack = new AsyncDisposableStack();
    const ours = await startOurs(stack, servers, size);
    rows.push(
      ...(await measureInTurns(ours, plan, size, size === 10 ? [{ read: "list", path }] : await readsOf(ours, size))),
    );
  }
  return [...rows, await measureHeld(servers, plan)];
}

interface Read {
  readonly read: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The reads of a large stock, an unchanged list first. */
async function readsOf(ours: Variant, size: number): Promise<Read[]> {
  const before = await etagOfList(ours);
  await changeSome(ours, size, 1_000);
  const between = await etagOfList(ours);
  await changeSome(ours, size, 10); // of those thousand
  const now = await etagOfList(ours);
  const since = (etag: string) => `${path}/changes?since=${etag.slice(1, -1)}`;
  return [
    { read: "304 of list", path, headers: { "If-None-Match": now } },
    { read: "one entry", path: `${path}/${size / 2}` },
    { read: "0 changes", path: since(now) },
    { read: "10 changes", path: since(between) },
    { read: "1000 changes", path: since(before) },
  ];
}

async function measureInTurns(ours: Variant, plan: Plan, size: number, reads: readonly Read[]): Promise<PublicRow[]> {
  const { address, processes } = ours;
  const headersOf = (read: Read) => ({ ...ours.headers, ...read.headers });
  const loadOf = (read: Read) => ({ address, connections, headers: headersOf(read), args: [read.path] });
  const runs = reads.map((): Figures[] => []);
  // The first round only warms up.
  for (let round = 0; round <= plan.rounds; round++) {
    for (const [i, read] of reads.entries()) {
      const figures = await measure({ ...loadOf(read), seconds: plan.seconds }, processes);
      if (round > 0) runs[i]!.push(figures);
    }
  }
  const rows: PublicRow[] = [];
  for (const [i, read] of reads.entries()) {
    const answer = await request(`http://${address}${read.path}`, { headers: headersOf(read) });
    const bytes = (await answer.body.arrayBuffer()).byteLength;
    rows.push({ size, read: read.read, bytes, figures: medians(runs[i]!) });
  }
  const first = rows[0]!.figures.cpuMs.gateway!;
  for (const { read, bytes, figures } of rows) {
    const cpu = figures.cpuMs.gateway!;
    const values = [
      figures.requestsPerSecond.toFixed(0),
      figures.p99Ms.toFixed(1),
      cpu.toFixed(4),
      (cpu / first).toFixed(2),
    ];
    plan.say([size, read, bytes, ...values, figures.errors].map(padded).join(""));
  }
  return rows;
}

async function etagOfList({ address, headers }: Variant): Promise<string> {
  const answer = await request(`http://${address}${path}`, { method: "HEAD", headers });
  return String(answer.headers.etag);
}

/** Changes entries that are as far from each other as can be. */
async function changeSome({ address, headers }: Variant, size: number, count: number): Promise<void> {
  const pool = new Pool(`http://${address}`, { connections });
  const change = async (i: number) => {
    const petId = 1 + Math.floor((i * size) / count);
    const body = JSON.stringify({ quantity: Math.floor(Math.random() * 1e9) });
    const more = { "content-type": "application/json" };
    await (
      await pool.request({ method: "PATCH", path: `${path}/${petId}`, headers: { ...headers, ...more }, body })
    ).body.dump();
  };
  await Promise.all(Array.from({ length: count }, (_, i) => change(i)));
  await pool.close();
}

async function measureHeld(servers: BenchServers, plan: Plan): Promise<HeldRow> {
  await using stack = new AsyncDisposableStack();
  const ours = await startOurs(stack, servers, sizes[0]!);
  const { admin, pid } = ours.system.gateways[0]!;
  const changes = `${path}/changes?since=${(await etagOfList(ours)).slice(1, -1)}`;
  const before = memoryMiB(pid);
  const [host, port] = ours.address.split(":");
  const headers = Object.entries({ Host: ours.address, ...ours.headers, Prefer: "wait=90" });
  const head = `GET ${changes} HTTP/1.1\r\n${headers.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`;
  const sockets: Socket[] = [];
  stack.defer(() => {
    for (const socket of sockets) socket.destroy();
  });
  const answers: Promise<number>[] = [];
  // Plain sockets: a client that parses all answers would take longer than the gateway.
  const hold = () =>
    new Promise<number>((resolve, reject) => {
      const socket = connect({ host: host!, port: Number(port) }, () => socket.write(head));
      sockets.push(socket);
      socket.on("error", reject).once("data", (answer) => {
        if (answer.includes(" 200 ")) resolve(performance.now());
        else reject(new Error(`a held request was answered: ${answer}`));
      });
    });
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
