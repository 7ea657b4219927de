// Measures the checks that gateways send to one service: `npm run bench -- --only checks`.
import { request } from "undici";
import { createInventoryClient, type InventoryClient } from "../../client/index.ts";
import type { Position } from "../../proto/pet.ts";
import { connectMysql } from "../support/mysql-client.ts";
import type { Plan } from "./list.ts";
import { cpuMsOf, median } from "./measure.ts";
import { offer } from "./open-loop.ts";
import { type BenchServers, startOurs } from "./systems.ts";

/** The figures of one load on some gateways of one service. */
export interface ChecksRow {
  readonly gateways: number;
  /** Reads of the list, or checks of gateways that always have one under way. */
  readonly load: "reads" | "checks";
  readonly perSecond: number;
  readonly selectsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly errors: number;
  /** User and system time, in ms for each read or check. */
  readonly cpuMs: { readonly service: number; readonly database: number };
}

type Answers = Pick<ChecksRow, "p50Ms" | "p99Ms" | "errors"> & { readonly count: number };

const entries = 100;
const readsPerSecond = 400;
const boundMs = 1_000;

/** Measures what the checks of several gateways on one service cost the service and the database. */
export async function benchChecks(servers: BenchServers, plan: Plan): Promise<ChecksRow[]> {
  await using stack = new AsyncDisposableStack();
  const { system, address, headers, processes } = await startOurs(stack, servers, entries);
  const counts = { reads: [1, 4, 16], checks: [1, 4, 16, 64] };
  const ports = [Number(new URL(`http://${address}`).port)];
  while (ports.length < Math.max(...counts.reads)) {
    ports.push(Number(new URL(`http://${(await system.startGateway()).listen}`).port));
  }
  const answer = await request(`http://${address}/v1/inventory`, { headers });
  await answer.body.dump();
  const wanted = { ...headers, "If-None-Match": String(answer.headers.etag) };
  const callers = await openCallers(stack, system.inventory.listen, Math.max(...counts.checks));

  const database = await connectMysql(servers.database.url(""));
  stack.defer(() => database.end());
  const used = async () => {
    const [rows] = await database.query("SHOW GLOBAL STATUS LIKE 'Com_select'");
    const selects = Number((rows as { Value: string }[])[0]!.Value);
    return [selects, cpuMsOf(processes.service!), cpuMsOf(processes.database!)] as const;
  };
  const loads: Record<ChecksRow["load"], (gateways: number, seconds: number) => Promise<Answers>> = {
    reads: async (gateways, seconds) => {
      const load = { headers: wanted, perSecond: readsPerSecond, seconds, connections: 64, boundMs };
      const { offered, good, ...times } = await offer({ ...load, ports: ports.slice(0, gateways) });
      return { ...times, count: offered, errors: offered - good };
    },
    checks: (gateways, seconds) => askAlways(callers.slice(0, gateways), seconds),
  };
  const run = async (load: ChecksRow["load"], gateways: number): Promise<ChecksRow> => {
    const before = await used();
    const { count, ...answers } = await loads[load](gateways, plan.seconds);
    const [selects, service, data] = (await used()).map((value, i) => value - before[i]!);
    const cpuMs = { service: service! / count, database: data! / count };
    const perSecond = count / plan.seconds;
    return { gateways, load, perSecond, selectsPerSecond: selects! / plan.seconds, ...answers, cpuMs };
  };

  plan.say(`${readsPerSecond} GET/s with 304, then gateways that always check, on one service`);
  plan.say(`Medians of ${plan.rounds} runs of ${plan.seconds} s; CPU in ms for each GET or check`);
  const titles = ["gateways", "per second", "SELECTs/s", "p50 ms", "p99 ms", "service CPU", "database CPU", "errors"];
  plan.say(["", ...titles].map((title) => title.padStart(14)).join(""));
  const rows: ChecksRow[] = [];
  for (const load of ["reads", "checks"] as const) {
    await loads[load](Math.max(...counts[load]), 5); // so that V8 has compiled the code
    const runs = counts[load].map((): ChecksRow[] => []);
    for (let round = 0; round < plan.rounds; round++) {
      for (const [i, gateways] of counts[load].entries()) runs[i]!.push(await run(load, gateways));
    }
    rows.push(...runs.map(mediansOf));
  }
  for (const row of rows) plan.say(line(row));
  return rows;
}

interface Caller {
  readonly client: InventoryClient;
  readonly position: Position;
}

/** Opens clients as gateways have them, each with a connection of its own. */
async function openCallers(stack: AsyncDisposableStack, address: string, count: number): Promise<Caller[]> {
  const callers: Caller[] = [];
  for (let i = 0; i < count; i++) {
    const client = createInventoryClient({ address, timeoutMs: 10_000 });
    stack.defer(() => client.close());
    for await (const { position } of client.list()) {
      callers.push({ client, position });
      break;
    }
  }
  return callers;
}

/** Has each caller ask again as soon as it has an answer. */
async function askAlways(callers: readonly Caller[], seconds: number): Promise<Answers> {
  const latencies: number[] = [];
  const untilMs = performance.now() + seconds * 1_000;
  let errors = 0;
  const ask = async ({ client, position }: Caller) => {
    for (let sentMs = performance.now(); sentMs < untilMs; sentMs = performance.now()) {
      await client.changesAfter(position).catch(() => errors++);
      latencies.push(performance.now() - sentMs);
    }
  };
  await Promise.all(callers.map(ask));
  latencies.sort((a, b) => a - b);
  const at = (share: number) => latencies[Math.floor(latencies.length * share)]!;
  return { count: latencies.length, p50Ms: at(0.5), p99Ms: at(0.99), errors };
}

function mediansOf(runs: readonly ChecksRow[]): ChecksRow {
  const of = (read: (row: ChecksRow) => number) => median(runs.map(read));
  return {
    gateways: runs[0]!.gateways,
    load: runs[0]!.load,
    perSecond: of((row) => row.perSecond),
    selectsPerSecond: of((row) => row.selectsPerSecond),
    p50Ms: of((row) => row.p50Ms),
    p99Ms: of((row) => row.p99Ms),
    errors: runs.reduce((sum, row) => sum + row.errors, 0),
    cpuMs: { service: of((row) => row.cpuMs.service), database: of((row) => row.cpuMs.database) },
  };
}

function line({ load, gateways, perSecond, selectsPerSecond, p50Ms, p99Ms, cpuMs, errors }: ChecksRow): string {
  const figures = [perSecond.toFixed(0), selectsPerSecond.toFixed(0), p50Ms.toFixed(1), p99Ms.toFixed(1)];
  return [load, gateways, ...figures, cpuMs.service.toFixed(3), cpuMs.database.toFixed(3), errors]
    .map((value) => String(value).padStart(14))
    .join("");
}
