import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createAuthority } from "../support/certificates.ts";
import { chartFolder } from "../support/chart.ts";
import { openHelm } from "../support/helm.ts";
import { request } from "../support/http.ts";
import { startLoad } from "../support/load.ts";
import {
  metricsIn,
  type Prometheus,
  promtool,
  readDashboards,
  rulesFile,
  startPrometheus,
} from "../support/prometheus.ts";
import { startRedisServer } from "../support/redis-server.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

/** Time for a hook that may have to install Prometheus first. */
const installTimeoutMs = 600_000;

/** The load runs for at least this time before the tests. */
const loadMs = process.env.FAULTS === "long" ? 60_000 : 0;
/** Every series has to appear within this time. */
const withinMs = 60_000;

interface Rule {
  readonly name: string;
  readonly query: string;
  readonly type: "alerting" | "recording";
  readonly health: string;
  readonly lastError?: string;
}

const dashboards = readDashboards();
const queries = dashboards.flatMap(({ panels }) =>
  panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
);

describe("Prometheus", () => {
  const stack = suiteStack();
  let system: System;
  let prometheus: Prometheus;

  beforeAll(async () => {
    const redis = await startRedisServer();
    stack.defer(() => redis.stop());
    const authority = await createAuthority(stack);
    const service = await authority.issue({ names: ["DNS:inventory.internal"] });
    const gateway = await authority.issue({ names: ["URI:spiffe://petstore/gateway"] });
    system = await startSystem({
      seed: [{ petId: 1n, quantity: 1, status: "available" }],
      inventoryEnv: {
        INVENTORY_TLS_CERT: service.cert,
        INVENTORY_TLS_KEY: service.key,
        INVENTORY_TLS_CLIENT_CA: service.ca,
        INVENTORY_TLS_ROLES: "spiffe://petstore/gateway=writer",
      },
      gatewayEnv: {
        REDIS_URL: redis.url,
        PLAN_LIMITS: "free=2/1000",
        LOG_LEVEL: "warn",
        GATEWAY_INVENTORY_TLS_CERT: gateway.cert,
        GATEWAY_INVENTORY_TLS_KEY: gateway.key,
        GATEWAY_INVENTORY_TLS_CA: gateway.ca,
        GATEWAY_INVENTORY_TLS_SERVER_NAME: "inventory.internal",
      },
    });
    stack.defer(() => system.close());
    prometheus = await startPrometheus({ gateway: [system.adminAddress], "inventory-svc": [system.inventory.admin] });
    stack.defer(() => prometheus.stop());
    const load = startLoad(system);
    stack.defer(() => load.stop());
    await delay(loadMs);
  }, installTimeoutMs);

  const rules = async () => {
    const { groups } = await prometheus.ask<{ groups: { rules: Rule[] }[] }>("rules");
    return groups.flatMap((group) => group.rules);
  };

  test("a running system has every series that dashboards, alerts and recording rules name", async () => {
    const all = [...queries, ...(await rules()).map(({ query }) => query)];
    const named = new Set(all.flatMap((query) => [...metricsIn(query)]));
    named.delete("ALERTS"); // exists only while an alert does
    expect(named.size).toBeGreaterThan(40);
    let missing = [...named];
    const look = async () => {
      const existing = new Set(await prometheus.ask<string[]>("label/__name__/values"));
      missing = missing.filter((name) => !existing.has(name));
      return missing.length === 0;
    };
    await until(look, { withinMs, everyMs: 200 }).catch(() => {});
    expect(missing).toEqual([]);
  });

  test("a running system has no rule that fails and no alert that fires", async () => {
    const all = await rules();
    expect(all.filter(({ health, lastError }) => health !== "ok" || lastError)).toEqual([]);
    const { alerts } = await prometheus.ask<{ alerts: { state: string }[] }>("alerts");
    expect(alerts.filter(({ state }) => state === "firing")).toEqual([]);
  });

  test("monitoring.md has each metric of a running system", async () => {
    const text = await readFile(join(import.meta.dirname, "../../docs/operations/monitoring.md"), "utf8");
    const scraped = await Promise.all(
      [system.adminAddress, system.inventory.admin].map((address) => request(address, { path: "/metrics" })),
    );
    const names = scraped.flatMap((answer) => [...answer.text.matchAll(/^# HELP (\w+)/gm)].map(([, name]) => name!));
    expect(names.length).toBeGreaterThan(40);
    const own = names.filter((name) => !/^(process|nodejs)_/.test(name));
    expect(own.filter((name) => !new RegExp(`\\b${name}\\b`).test(text))).toEqual([]);
  });

  test("a running system has labels from closed sets, whatever callers send", async () => {
    const values = (label: string) => prometheus.ask<string[]>(`label/${label}/values`);
    expect(await values("route")).toEqual([
      "docs",
      "getOrders",
      "getPet",
      "listInventory",
      "unknown",
      "updateInventory",
    ]);
    expect(await values("plan")).toEqual(["business", "enterprise", "free", "none", "pro"]);
    expect(await values("reason")).toEqual(["account", "address", "ban", "day", "minute"]);
  });
});

describe("the observability files", () => {
  const stack = suiteStack();

  test.each([
    ["a valid configuration", ["check", "config"], "prometheus.yaml"],
    ["valid rules", ["check", "rules"], rulesFile],
    ["alerts that fire when they should and at no other time", ["test", "rules"], "rules.test.yaml"],
    ["an alert for a replica of Docker Compose that is gone", ["test", "rules"], "compose-rules.test.yaml"],
  ])("have %s according to promtool", (_what, command, file) => promtool(command, file), installTimeoutMs);

  test(
    "the chart's alerts are about its own namespace alone, also when it is long gone",
    async () => {
      const helm = await openHelm(chartFolder);
      const folder = await temporaryFolder("chart-rules");
      for (const each of [helm, folder]) stack.defer(() => each.remove());
      const manifests = await helm.render({ monitoring: { enabled: true } });
      const rules = manifests.find(({ kind }) => kind === "PrometheusRule")!.spec;
      await writeFile(join(folder.path, "rules.yaml"), JSON.stringify(rules));
      const series = ["gateway", "inventory-svc"].flatMap((job) => [
        { series: `up{namespace="default",job="${job}",instance="1"}`, values: "1x10 _x110" },
        { series: `up{namespace="other",job="${job}",instance="2"}`, values: "1x120" },
        { series: `up{namespace="loki",job="${job}",instance="3"}`, values: "0x120" },
        { series: `process_start_time_seconds{namespace="loki",job="${job}",instance="3"}`, values: "1+60x120" },
      ]);
      const alerts = {
        expr: 'sum by (alertname, namespace) (ALERTS{alertstate="firing"})',
        eval_time: "90m",
        exp_samples: ["GatewayAbsent", "InventoryAbsent"].map((name) => ({
          labels: `{alertname="${name}",namespace="default"}`,
          value: 1,
        })),
      };
      const tests = [{ interval: "1m", input_series: series, promql_expr_test: [alerts] }];
      await writeFile(join(folder.path, "test.yaml"), JSON.stringify({ rule_files: ["rules.yaml"], tests }));
      await promtool(["test", "rules"], join(folder.path, "test.yaml"));
    },
    installTimeoutMs,
  );

  test("the dashboards have distinct uids", () => {
    expect(new Set(dashboards.map(({ uid }) => uid)).size).toBe(dashboards.length);
    expect(dashboards.length).toBeGreaterThan(0);
  });

  test.each(dashboards)("the dashboard in $file is well-formed", ({ panels, templating }) => {
    expect(templating.list[0]).toMatchObject({ name: "datasource", type: "datasource", query: "prometheus" });
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    for (const { type, title, datasource, targets = [] } of panels) {
      expect(title).toBeTruthy();
      if (type === "row") continue;
      expect(targets.length).toBeGreaterThan(0);
      for (const { uid } of [datasource!, ...targets.map((target) => target.datasource)]) {
        expect(uid).toMatch(/^\$\{datasource\}$/);
      }
      expect(targets.every(({ expr }) => expr.length > 0)).toBe(true);
    }
  });

  test.each(dashboards)("the dashboard in $file shows the deployments of the chosen namespaces alone", (dashboard) => {
    // Where there are no namespaces, the label is empty, which the pattern for all of them takes.
    expect(dashboard.templating.list).toContainEqual(expect.objectContaining({ name: "namespace", allValue: ".*" }));
    for (const { expr } of dashboard.panels.flatMap(({ targets = [] }) => targets)) {
      for (const name of metricsIn(expr)) {
        const uses = expr.split(new RegExp(`(?<![\\w:])${name}(?![\\w:])`)).slice(1);
        expect(uses.filter((use) => !use.startsWith('{namespace=~"$namespace"'))).toEqual([]);
      }
    }
  });
});
