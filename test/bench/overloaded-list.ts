// Measures a gateway under more load than it can take: `npm run bench -- --only overload`.
import type { Plan } from "./list.ts";
import { measure, memoryMiB } from "./measure.ts";
import { offer } from "./open-loop.ts";
import { type BenchServers, startOurs } from "./systems.ts";

/** One load at a steady rate. */
export interface OverloadRow {
  /** Multiple of the best goodput that is offered. */
  readonly times: number;
  readonly offeredPerSecond: number;
  /** 200 within the bound, per second. */
  readonly goodPerSecond: number;
  readonly refusedShare: number;
  readonly badShare: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly gatewayMiB: number;
}

/** A large list, and compressed, so that the gateway has most of the work and the load generator little. */
const entries = 800_000;
const coding = { "Accept-Encoding": "gzip" };
const connections = 1_000;
const boundMs = 1_000;

/** Measures how much useful work one gateway does when the load exceeds its capacity. */
export async function benchOverload(servers: BenchServers, plan: Plan): Promise<OverloadRow[]> {
  await using stack = new AsyncDisposableStack();
  const { address, headers, processes } = await startOurs(stack, servers, entries);
  const seconds = Math.max(5, plan.seconds);
  plan.say(
    `GET /v1/inventory of ${entries} entries as gzip at a steady rate, ${seconds} s each; good: 200 within ${boundMs} ms`,
  );
  const heading = ["×", "offered/s", "good/s", "of best", "refused", "bad", "p50 ms", "p99 ms", "gateway MiB"];
  plan.say(heading.map((text) => text.padStart(12)).join(""));

  const run = async (perSecond: number) => {
    const ports = [Number(new URL(`http://${address}`).port)];
    const load = { ports, headers: { ...headers, ...coding }, perSecond, seconds, connections, boundMs };
    const arrivals = await offer(load);
    return { ...arrivals, perSecond, gatewayMiB: memoryMiB(processes.gateway!) };
  };
  // The rate of callers that wait for answers is only the start: the generator takes less of the machine than they do.
  const { requestsPerSecond } = await measure(
    { address, connections: 64, seconds: 3, headers: { ...headers, ...coding } },
    processes,
  );
  const runs = [];
  // Something else on the machine may spoil one run, so the search ends after two bad runs in a row.
  for (let perSecond = requestsPerSecond * 0.7, tooMuch = 0; tooMuch < 2; perSecond *= 1.15) {
    const latest = await run(perSecond);
    runs.push(latest);
    tooMuch = latest.good < 0.95 * latest.offered ? tooMuch + 1 : 0;
  }
  const best = Math.max(...runs.map(({ good }) => good)) / seconds;
  for (const times of [1, 2, 3]) runs.push(await run(best * times));
  runs.push(await run(best / 2)); // the gateway recovers once the load falls
  return runs.map((run) => {
    const row: OverloadRow = {
      times: run.perSecond / best,
      offeredPerSecond: run.perSecond,
      goodPerSecond: run.good / seconds,
      refusedShare: run.refused / run.offered,
      badShare: run.bad / run.offered,
      p50Ms: run.p50Ms,
      p99Ms: run.p99Ms,
      gatewayMiB: run.gatewayMiB,
    };
    plan.say(line(row, best));
    return row;
  });
}

function line(row: OverloadRow, best: number): string {
  const percent = (share: number) => `${(100 * share).toFixed(0)} %`;
  return [
    row.times.toFixed(2),
    row.offeredPerSecond.toFixed(0),
    row.goodPerSecond.toFixed(0),
    percent(row.goodPerSecond / best),
    percent(row.refusedShare),
    percent(row.badShare),
    row.p50Ms.toFixed(0),
    row.p99Ms.toFixed(0),
    row.gatewayMiB.toFixed(0),
  ]
    .map((text) => text.padStart(12))
    .join("");
}
