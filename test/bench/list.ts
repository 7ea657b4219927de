// Measures reads of the list on each variant: `npm run bench -- --only list`.
import { gzipSync } from "node:zlib";
import { Pool, request } from "undici";
import { type Figures, measure, medians, totalCpuMs } from "./measure.ts";
import { type BenchServers, startConstant, startOurs, startPlain, type Variant } from "./systems.ts";

export interface Plan {
  readonly sizes: readonly number[];
  readonly rounds: number;
  readonly seconds: number;
  readonly say: (text: string) => void;
}

/** One line of the table: a load on each of the variants. */
export interface ListRow {
  readonly size: number;
  /** Length of the body without a coding. */
  readonly bytes: number;
  readonly writesPerSecond: number;
  readonly coding: "identity" | "gzip" | "304";
  readonly ours: Figures;
  readonly plain: Figures;
  readonly constant: Figures;
}

/** Fewer connections where responses are large, as the load generator shares the cores with the servers. */
const connectionsFor = (size: number) => (size >= 100_000 ? 8 : 32);

/** Measures GET /v1/inventory at each size, without and with writes, plain and as gzip. */
export async function benchList(servers: BenchServers, plan: Plan): Promise<ListRow[]> {
  const rows: ListRow[] = [];
  plan.say(`GET /v1/inventory, medians of ${plan.rounds} runs of ${plan.seconds} s; CPU in ms for each request`);
  plan.say(heading);
  for (const size of plan.sizes) {
    await using stack = new AsyncDisposableStack();
    const ours = await startOurs(stack, servers, size);
    const plain = await startPlain(stack, servers, size);
    const { body } = await request(`http://${ours.address}/v1/inventory`, { headers: ours.headers });
    const bytes = Buffer.from(await body.arrayBuffer());
    const constant = await startConstant(stack, bytes);
    const zipped = await startConstant(stack, gzipSync(bytes));
    const loads = [
      ...[0, 10, 500].map((writesPerSecond) => ({ writesPerSecond, coding: "identity" as const, constant, extra: {} })),
      { writesPerSecond: 0, coding: "gzip" as const, constant: zipped, extra: { "Accept-Encoding": "gzip" } },
      { writesPerSecond: 0, coding: "304" as const, constant, extra: { "If-None-Match": "*" } },
    ];
    // Warms all variants up, as their code is compiled while it runs.
    for (const { address, headers, processes } of [ours, plain, constant, zipped]) {
      await measure({ address, connections: connectionsFor(size), seconds: 2 * plan.seconds, headers }, processes);
    }
    for (const { extra, ...load } of loads) {
      const variants = { ours, plain, constant: load.constant };
      const runs: Record<keyof typeof variants, Figures[]> = { ours: [], plain: [], constant: [] };
      for (let round = 0; round < plan.rounds; round++) {
        for (const name of ["ours", "plain", "constant"] as const) {
          const variant = variants[name];
          const target = name === "constant" ? ours : variant;
          await using _writer = writeAt(load.writesPerSecond, target, size);
          const wanted = { ...variant.headers, ...extra };
          const { address, processes } = variant;
          const connections = connectionsFor(size);
          runs[name].push(await measure({ address, connections, seconds: plan.seconds, headers: wanted }, processes));
          // The backlog of a slow variant would spoil the next one's figures.
          await new Promise((resolve) => setTimeout(resolve, 700));
        }
      }
      const row: ListRow = {
        size,
        bytes: bytes.length,
        writesPerSecond: load.writesPerSecond,
        coding: load.coding,
        ours: medians(runs.ours),
        plain: medians(runs.plain),
        constant: medians(runs.constant),
      };
      rows.push(row);
      plan.say(line(row));
    }
  }
  sayGrowth(rows, plan);
  return rows;
}

/** Prints how the cost of a request and its bytes grow from 1,000 entries on. */
function sayGrowth(rows: readonly ListRow[], { say }: Plan): void {
  const plain = rows.filter(
    ({ size, coding, writesPerSecond }) => size >= 1_000 && coding === "identity" && !writesPerSecond,
  );
  const [first, last] = [plain[0], plain.at(-1)];
  if (!first || !last || first === last) return;
  const growth = (read: (row: ListRow) => number) => (read(last) / read(first)).toFixed(1);
  say(
    `From ${first.size} to ${last.size} entries: bytes x${growth((row) => row.bytes)}, ` +
      `gateway CPU x${growth((row) => row.ours.cpuMs.gateway!)}, all CPU x${growth((row) => totalCpuMs(row.ours))}, ` +
      `all CPU of plain x${growth((row) => totalCpuMs(row.plain))}`,
  );
}

/** Sends updates at a steady rate until it is disposed of. */
function writeAt(perSecond: number, { address, headers }: Variant, size: number): AsyncDisposable {
  if (perSecond === 0) return { [Symbol.asyncDispose]: async () => {} };
  const pool = new Pool(`http://${address}`, { connections: 32 });
  const everyMs = 20;
  let owed = 0;
  const timer = setInterval(() => {
    for (owed += (perSecond * everyMs) / 1_000; owed >= 1; owed--) {
      const petId = 1 + Math.floor(Math.random() * size);
      const body = JSON.stringify({ quantity: Math.floor(Math.random() * 1e9) });
      pool
        .request({
          method: "PATCH",
          path: `/v1/inventory/${petId}`,
          headers: { ...headers, "content-type": "application/json" },
          body,
        })
        .then((response) => response.body.dump())
        .catch(() => {});
    }
  }, everyMs);
  return {
    [Symbol.asyncDispose]: async () => {
      clearInterval(timer);
      await pool.destroy();
    },
  };
}

const heading = [
  "entries",
  "writes/s",
  "coding",
  "req/s",
  "plain",
  "×",
  "p99 ms",
  "gateway CPU",
  "plain",
  "×",
  "constant",
  "÷ constant",
  "all CPU ×",
  "errors",
]
  .map((text) => text.padStart(13))
  .join("");

function line({ size, writesPerSecond, coding, ours, plain, constant }: ListRow): string {
  const cpu = (figures: Figures) => figures.cpuMs.gateway!;
  return [
    size,
    writesPerSecond,
    coding,
    ours.requestsPerSecond.toFixed(0),
    plain.requestsPerSecond.toFixed(1),
    (ours.requestsPerSecond / plain.requestsPerSecond).toFixed(1),
    ours.p99Ms.toFixed(1),
    cpu(ours).toFixed(4),
    cpu(plain).toFixed(3),
    (cpu(plain) / cpu(ours)).toFixed(1),
    cpu(constant).toFixed(4),
    (cpu(ours) / cpu(constant)).toFixed(2),
    (totalCpuMs(plain) / totalCpuMs(ours)).toFixed(1),
    ours.errors + plain.errors,
  ]
    .map((value) => String(value).padStart(13))
    .join("");
}
