import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { parse } from "yaml";
import { rulesFile } from "../support/prometheus.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { type FaultName, faults } from "./planted-faults.ts";
import { startWatchedSystem, type WatchedSystem } from "./watched-system.ts";

/** All ranges and delays of the rules are divided by this: 5 minutes become 5 seconds. */
const timesFaster = 60;
/**
 * Times that a moment of a busy machine would cross, and what they are here: half a second counts as much
 * here as half a minute in operation.
 */
const ownTimes = [
  ['le="0.5"', 'le="1"'],
  [
    "(rate(inventory_commit_duration_seconds_bucket[2m]))) > 0.5",
    "(rate(inventory_commit_duration_seconds_bucket[2m]))) > 1",
  ],
  ["gateway_list_checked_timestamp_seconds > 60", "gateway_list_checked_timestamp_seconds > 5"],
  // A new certificate counts as one with a quarter of its life left.
  [
    '_not_before_timestamp_seconds{job=~"gateway|inventory-svc"}) / 4',
    '_not_before_timestamp_seconds{job=~"gateway|inventory-svc"})',
  ],
  // A process starts three times in this range.
  ['{job=~"gateway|inventory-svc"}[15m]', '{job=~"gateway|inventory-svc"}[30m]'],
] as const;
/** A fault lasts at least this long, so that no alert is too slow to be seen: the longest `for` takes 10 s of it. */
const faultMs = 16_000;
/** What comes late: the settings of a database server are read once a minute. */
const withinMs = 90_000;

/** A fault is tried again when another alert fired and a turn of the event loop of the tests came this late. */
const starvedMs = 300;
const attempts = 4;

const errors = ["GatewayErrorsBudgetBurnsFast", "GatewayErrorsBudgetBurnsSlow"];
const latency = ["GatewayLatencyBudgetBurnsFast", "GatewayLatencyBudgetBurnsSlow"];

/**
 * The alerts of each fault. `may`: those that depend on how fast the machine starts a process, answers what waited
 * until the end of the fault, and reads for callers beside those that it refuses.
 */
const alertsOf: Readonly<Record<FaultName, { readonly fire: readonly string[]; readonly may?: readonly string[] }>> = {
  "one request in a hundred fails": { fire: ["GatewayErrorsBudgetBurnsSlow"] },
  "one request of the inventory in a hundred is slow": { fire: ["GatewayLatencyBudgetBurnsSlow"] },
  "a service behind the gateway fails": { fire: errors },
  "the network between the tiers is slow": { fire: latency },
  "a gateway is killed": { fire: ["GatewayDown"] },
  "all gateways are killed": { fire: ["GatewayAbsent", "GatewayDown"] },
  "more gateways run than GATEWAY_REPLICAS says": { fire: ["GatewayReplicasUnderstated"] },
  "Redis is killed": { fire: ["GatewayWithoutRedis"] },
  "the database of the keys cannot be reached": { fire: ["GatewayKeysDatabaseAway", ...errors] },
  "the services cannot be reached": { fire: ["GatewayListNotChecked", ...errors], may: latency },
  "the services do not answer": {
    fire: ["GatewayListNotChecked", ...errors],
    may: ["GatewayUpdatesUnknown", ...latency],
  },
  "a gateway gets more requests than it has time for": { fire: ["GatewayOverloaded", ...errors], may: latency },
  "the services get little time": { fire: ["EventLoopDelayed"], may: latency },
  "a service is killed": { fire: ["InventoryDown"] },
  "all services are killed": {
    fire: ["InventoryAbsent", "InventoryDown", "GatewayListNotChecked", ...errors],
    may: latency,
  },
  "a service crashes again and again": { fire: ["ProcessRestarts"], may: ["InventoryDown", ...latency] },
  "the database of the stock cannot be reached": {
    fire: ["InventoryDatabaseAway", "GatewayListNotChecked", "TierNotReady", ...errors],
    may: ["DatabaseConnectionsExhausted", ...latency],
  },
  "the database of the stock does not answer": {
    fire: ["GatewayUpdatesUnknown", "DatabaseConnectionsExhausted", "GatewayListNotChecked", "TierNotReady", ...errors],
    may: ["InventoryDatabaseAway", "InventoryQueueNearBound", "InventorySlowCommits", ...latency],
  },
  "one of several services loses its database": { fire: ["ProcessNotReady"] },
  "a certificate is not renewed": { fire: ["CertificateExpiresSoon"] },
  "the database server forgets commits in a crash": { fire: ["DatabaseNotSafe"] },
  "the database of the stock has lost changes": {
    fire: ["GatewayListNotChecked", "InvariantFailed", "TierNotReady"],
    may: ["GatewayDown", "GatewayUpdatesUnknown", "InventoryDatabaseAway", "InventoryDown", ...errors, ...latency],
  },
  "another writer holds the lock of the stock": { fire: ["InventorySlowCommits", ...latency] },
  "many changes wait for another writer": {
    fire: ["InventoryQueueNearBound", ...latency],
    may: ["InventorySlowCommits"],
  },
  "more callers read than there are connections, over a slow network": {
    fire: ["DatabaseConnectionsExhausted"],
    may: latency,
  },
};

interface Rule {
  alert?: string;
  expr: string;
  for?: string;
}

const { groups } = parse(readFileSync(rulesFile, "utf8")) as { groups: { rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);

test("the table of faults has every alert of the rules", () => {
  const inTable = Object.values(alertsOf).flatMap(({ fire }) => fire);
  expect([...new Set(inTable)].sort()).toEqual(rules.flatMap(({ alert }) => alert ?? []).sort());
});

test("each time that the suite of alerts changes is in the rules", () => {
  const absent = ownTimes.filter(([real]) => !rules.some(({ expr }) => expr.includes(real)));
  expect(absent).toEqual([]);
});

// `npm run test:containers` runs it. A machine that is busy with other work fires alerts of its own.
(process.env.FAULTS === "long" ? describe : describe.skip)("a real system whose alerts are 60 times as fast", () => {
  const stack = suiteStack();
  let watched: WatchedSystem;
  const delays = monitorEventLoopDelay();
  delays.enable();
  stack.defer(() => void delays.disable());

  beforeAll(async () => {
    const folder = await temporaryFolder("rules");
    stack.defer(() => folder.remove());
    const file = join(folder.path, "rules.yaml");
    for (const rule of rules) {
      if (rule.for !== undefined) rule.for = faster(rule.for);
      for (const [real, here] of ownTimes) rule.expr = rule.expr.replaceAll(real, here);
      rule.expr = rule.expr.replace(/\[(\w+)\]/g, (_, range: string) => `[${faster(range)}]`);
    }
    await writeFile(file, JSON.stringify({ groups }));
    watched = await startWatchedSystem(stack, { rules: file, scrapeMs: 500, evaluateMs: 250 });
  }, 600_000);

  const active = async () =>
    (await watched.prometheus.ask<{ alerts: { state: string; labels: { alertname: string } }[] }>("alerts")).alerts;
  const isQuiet = async () => (await active()).length === 0;
  /** The alerts that fired at any evaluation since a time. */
  const firedSince = async (sinceMs: number) => {
    const query = `count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[${Date.now() - sinceMs + 1}ms]))`;
    type Answer = { result: { metric: { alertname: string } }[] };
    return (await watched.prometheus.ask<Answer>("query", { query })).result.map(({ metric }) => metric.alertname);
  };

  /** Makes a fault, ends it, and waits until all is quiet. */
  const tryFault = async (name: FaultName, fire: readonly string[]) => {
    await until(isQuiet, { withinMs, everyMs: 200 });
    const beganMs = Date.now();
    delays.reset();
    const end = await faults[name](watched);
    const isComplete = async () => {
      const fired = await firedSince(beganMs);
      return fire.every((alert) => fired.includes(alert));
    };
    const seen = await until(isComplete, { withinMs, everyMs: 200 }).catch((error: Error) => error);
    await delay(Math.max(0, beganMs + faultMs - Date.now()));
    await end();
    const ended = await until(isQuiet, { withinMs, everyMs: 200 }).catch((error: Error) => error);
    return {
      fired: await firedSince(beganMs),
      faults: [seen, ended].filter(Boolean),
      longestDelayMs: delays.max / 1e6,
    };
  };

  test.each(Object.entries(alertsOf))(
    "a real system has no alerts but those of the fault while %s, and none before and after it",
    async (name, { fire, may = [] }) => {
      for (let attempt = 1; ; attempt++) {
        const { fired, faults, longestDelayMs } = await tryFault(name as FaultName, fire);
        const others = fired.filter((alert) => !may.includes(alert)).sort();
        const isExpected = faults.length === 0 && isDeepStrictEqual(others, [...fire].sort());
        // A machine that gives its processes no time for so long is a fault of its own.
        if (!isExpected && longestDelayMs > starvedMs && attempt < attempts) {
          console.warn(`${name}: ${others} fired, but a turn of this process began ${longestDelayMs} ms late: again`);
          continue;
        }
        expect({ alerts: others, faults }).toEqual({ alerts: [...fire].sort(), faults: [] });
        return;
      }
    },
    attempts * (faultMs + 3 * withinMs),
  );
});

/** @param duration in one unit, such as 5m */
function faster(duration: string): string {
  const [, count, unit] = /^(\d+)([smh])$/.exec(duration)!;
  const unitMs = { s: 1_000, m: 60_000, h: 3_600_000 }[unit as "s" | "m" | "h"];
  return `${(Number(count) * unitMs) / timesFaster}ms`;
}
