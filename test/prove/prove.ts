/** Checks the promises for ten minutes, and leaves a report that a stranger can check: `npm run prove`. */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, release } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { InvalidArgumentError } from "commander";
import { type Cluster, startCluster } from "../faults/cluster.ts";
import { type BrokenConnection, type Effect, judgeRecorded, recordHistory } from "../faults/history.ts";
import { judgeEvents } from "../simulation/events.ts";
import type { History } from "../simulation/oracle.ts";
import { type Plan, planOf } from "../simulation/plan.ts";
import { keptPlans } from "../simulation/plan-files.ts";
import type { PlanResult } from "../simulation/worker.ts";
import { runAll } from "../simulation/workers.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { count, createTool } from "../support/tools.ts";
import { operationsOf } from "./history-file.ts";
import { type Kill, timeline } from "./timeline.ts";

const tool = createTool("prove", "Checks the promises by simulated runs, and by one run of real processes under kills.")
  .option("--minutes <n>", "how long, as 0.5", parseMinutes, 10)
  .option("--seed <seed>", "the first seed; default: one that nobody has chosen", count, 1 + (Date.now() % 10_000_000))
  .option("--report <folder>", "where the report goes", ".data/prove")
  .option("--gateway <script>", "in place of the gateway's own, such as test/faults/broken-gateway.ts")
  .option("--service <script>", "in place of the service's own, such as test/faults/broken-service.ts");
tool.parse();
const options = tool.opts<{ minutes: number; seed: number; report: string; gateway?: string; service?: string }>();
const pets = 8;
/** A kill is felt when a request gets no 200, or no update is acknowledged for as long. */
const feltMs = 250;
/** With fewer seeds, or fewer kills that any caller noticed, a run without a violation says too little. */
const floor = { seeds: 50, felt: 20 };
/** Violations that the console shows; the report has more. */
const shown = 10;
const startedAt = new Date().toISOString();
// A run that fails must not leave an older report behind.
const names = ["history.ndjson", "faults.ndjson", "seeds.ndjson", "report.json", "timeline.html"] as const;
for (const name of names) rmSync(join(options.report, name), { force: true });

await using stack = new AsyncDisposableStack();
const totalMs = options.minutes * 60_000;
console.log(`simulated runs from seed ${options.seed}`);
const simulated = await simulate(totalMs / 2);
const scripts = {
  ...(options.gateway && { gatewayScript: options.gateway }),
  ...(options.service && { serviceScript: options.service }),
};
console.log("real processes under kills");
const cluster = await startCluster(stack, { gateways: 3, pets, ...scripts });
const { history, failedReads, brokenConnections, kills, faults, ...run } = await runUnderKills(cluster, totalMs / 2);
const { start, operations, committed } = operationsOf(history, failedReads);
const broken = {
  simulated: simulated.failed.flatMap(({ plan, violations }) => violations.map((what) => `seed ${plan.seed}: ${what}`)),
  processes: [...faults, ...unexplained(brokenConnections, kills), ...judgeRecorded(history)],
};
const violations = [...broken.simulated.slice(0, 100), ...broken.processes.slice(0, 100)];
const seeds = simulated.lastSeed - options.seed + 1;
const isFelt = ({ refused, gapMs }: Effect) => refused > 0 || gapMs > feltMs;
const felt = kills.filter(isFelt).length;
const isEnough = seeds >= floor.seeds && felt >= floor.felt;
const { seldom } = judgeEvents(simulated.results);
const report = {
  verdict:
    violations.length > 0 ? "a promise was broken" : isEnough ? "no promise was broken" : "too little to say anything",
  violations,
  violationCounts: { simulated: broken.simulated.length, processes: broken.processes.length },
  startedAt,
  endedAt: new Date().toISOString(),
  versions: await versions(cluster),
  options,
  simulated: {
    runs: seeds,
    replayedPlans: simulated.results.length - seeds,
    isSeedChosen: tool.getOptionValueSource("seed") === "cli",
    seeds: seeds === 0 ? "none" : `${options.seed} to ${simulated.lastSeed}, each twice with the same trace`,
    failed: simulated.failed.map(({ plan }) => plan.seed),
    requests: sumOf(simulated.results.map(({ requests }) => requests)),
    virtualSeconds: Math.round(sumOf(simulated.results.map(({ virtualMs }) => virtualMs)) / 1_000),
    events: totalEvents(simulated.results),
    metTooSeldom: seldom,
  },
  processes: {
    gateways: 3,
    services: 2,
    operations: operations.length,
    kills: kills.length,
    felt,
    byProcess: Object.fromEntries(
      [...Map.groupBy(kills, ({ what }) => what)].map(([what, of]) => {
        return [what, { kills: of.length, felt: of.filter(isFelt).length }];
      }),
    ),
    leastMs: leastDistancesMs(history),
    ...run,
  },
};
mkdirSync(options.report, { recursive: true });
const write = (name: (typeof names)[number], text: string) => writeFileSync(join(options.report, name), text);
const toLines = (lines: readonly object[]) => lines.map((line) => `${JSON.stringify(line)}\n`).join("");
write("history.ndjson", toLines([{ op: "start", entries: start }, ...operations, ...committed]));
write("faults.ndjson", toLines(kills));
write(
  "seeds.ndjson",
  toLines(simulated.results.map(({ plan: { seed }, hash, requests }) => ({ seed, hash, requests }))),
);
write("report.json", `${JSON.stringify(report, undefined, 2)}\n`);
write("timeline.html", timeline(report, operations, kills));
console.log(
  `${report.verdict}: ${seeds} seeds, ${operations.length} operations, ${felt} of ${kills.length} kills felt, ${Object.keys(seldom).length} events met too seldom`,
);
console.log(violations.slice(0, shown).join("\n"));
const more = broken.simulated.length + broken.processes.length - shown;
if (more > 0) console.log(`and ${more} more`);
console.log(`The report: ${options.report}`);
process.exitCode = violations.length > 0 ? 1 : isEnough ? 0 : 2;

/** Runs the kept plans, and then one seed after the other until the time is up. */
async function simulate(forMs: number) {
  const endMs = performance.now() + forMs;
  const results: PlanResult[] = [];
  let lastSeed = options.seed - 1;
  const plans = function* (): Generator<Plan> {
    yield* keptPlans();
    while (performance.now() < endMs) yield planOf(++lastSeed);
  };
  await runAll(plans(), (result) => {
    results.push(result);
    return true;
  });
  return { results, failed: results.filter((result) => result.violations.length > 0), lastSeed };
}

/** Lets callers read and write until the time is up, and kills one process after the other meanwhile. */
async function runUnderKills({ services, gateways, database, ...tiers }: Cluster, forMs: number) {
  const crashDatabase = async () => {
    await database.kill("SIGKILL");
    await database.restart();
  };
  const targets = [
    ...services.map((one, i) => ({ what: `service ${i + 1}`, crash: one.crash })),
    { what: "database", crash: crashDatabase },
    ...gateways.map((one, i) => ({ what: `gateway ${i + 1}`, crash: one.crash })),
  ];
  const endMs = performance.now() + forMs;
  const kills: Omit<Kill, keyof Effect>[] = [];
  const disturbances = function* () {
    for (let turn = 0; turn === 0 || performance.now() < endMs; turn++) {
      const { what, crash } = targets[turn % targets.length]!;
      yield async () => {
        await delay(1_000);
        const fromMs = performance.now();
        await crash();
        kills.push({ what, fromMs, toMs: performance.now() });
      };
    }
  };
  const { system } = tiers;
  const load = { readers: 8, reads: 1_000, pauseMs: 40, updates: { isKeyed: "half" } } as const;
  const all = { key: system.keys.enterprise, pets, ...load, disturbances: disturbances() };
  const { history, zeroMs, effects, ...counts } = await recordHistory({ services, gateways, system }, all);
  const since = kills.map(({ what, fromMs, toMs }, i) => {
    return { what, fromMs: fromMs - zeroMs, toMs: toMs - zeroMs, ...effects[i]! };
  });
  return { history, kills: since, ...counts };
}

/** Connections break where their gateway is killed, and only there. */
function unexplained(broken: readonly BrokenConnection[], kills: readonly Kill[]): string[] {
  return broken.flatMap(({ gateway, callMs, returnMs, what }) => {
    const name = `gateway ${gateway + 1}`;
    const isKilled = kills.some((kill) => kill.what === name && kill.fromMs <= returnMs && callMs <= kill.toMs);
    return isKilled ? [] : [`${what} at ${returnMs.toFixed(0)} from ${name}, which was not killed then`];
  });
}

/**
 * How near updates came to their commits, by the clock of the database: below zero where the clocks disagree. The
 * oracle allows for 5 ms.
 */
function leastDistancesMs({ commits, changes }: History) {
  const committedMs = new Map(commits.flatMap(({ atMs, rows }) => rows.map(({ revision }) => [revision, atMs])));
  const least = { fromCallToCommit: Number.POSITIVE_INFINITY, fromCommitToAnswer: Number.POSITIVE_INFINITY };
  for (const { attempts } of changes) {
    for (const { outcome, returnMs } of attempts) {
      if (outcome.kind !== "done") continue;
      const atMs = committedMs.get(outcome.revision)!;
      least.fromCallToCommit = Math.min(least.fromCallToCommit, atMs - attempts[0]!.callMs);
      least.fromCommitToAnswer = Math.min(least.fromCommitToAnswer, returnMs - atMs);
    }
  }
  return least;
}

async function versions({ system }: Cluster): Promise<Readonly<Record<string, string>>> {
  const git = (...args: readonly string[]) => execFileSync("git", args, { encoding: "utf8" }).trim();
  const connection = await connectMysql(system.databaseUrls.inventory);
  const [rows] = await connection.query("SELECT VERSION() AS version");
  await connection.end();
  return {
    package: JSON.parse(readFileSync("package.json", "utf8")).version,
    commit: git("rev-parse", "HEAD"),
    changes: git("status", "--porcelain"),
    difference: git("diff", "HEAD"),
    node: process.version,
    system: `${process.platform} ${release()} ${process.arch}, ${availableParallelism()} cores`,
    database: (rows as { version: string }[])[0]!.version,
  };
}

function totalEvents(results: readonly PlanResult[]): Record<string, number> {
  const totals: Record<string, number> = {};
  for (const { events } of results) {
    for (const [name, many] of Object.entries(events)) totals[name] = (totals[name] ?? 0) + many;
  }
  return totals;
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, one) => sum + one, 0);
}

function parseMinutes(text: string): number {
  if (!/^\d{1,4}(\.\d+)?$/.test(text) || Number(text) === 0)
    throw new InvalidArgumentError("must be a number above 0.");
  return Number(text);
}
