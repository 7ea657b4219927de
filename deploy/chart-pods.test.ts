import { pino } from "pino";
import { Registry } from "prom-client";
import { readGatewayConfig } from "../gateway/config.ts";
import { readInventoryConfig } from "../inventory-svc/config.ts";
import { startAdmin } from "../runtime/admin.ts";
import { chartFolder, settings, suiteChart, variants } from "../test/support/chart.ts";
import type { Values } from "../test/support/helm.ts";
import { nameOf } from "../test/support/kubernetes.ts";

describe("pods of the chart", () => {
  const { each, all, deployment, container, environment, helm } = suiteChart();

  test.each(["gateway", "inventory-svc"] as const)("%s accepts the settings of its pods", (tier) => {
    for (const variant of Object.keys(variants)) {
      const read = tier === "gateway" ? readGatewayConfig : readInventoryConfig;
      expect(() => read(environment(variant, tier))).not.toThrow();
    }
  });

  test.each(["gateway", "inventory-svc"] as const)("%s listens on the ports of its container", (tier) => {
    const [listen, admin] = Object.entries(environment("production", tier)).flatMap(([name, value]) =>
      name.endsWith("_LISTEN") ? [[name, Number(value!.split(":")[1])] as const] : [],
    );
    const ports = container("production", tier).ports.map(({ containerPort }) => containerPort);
    expect(listen![0]).not.toContain("ADMIN");
    expect([listen![1], admin![1]]).toEqual(ports);
  });

  test("the probes use paths that the admin port answers", async () => {
    const admin = await startAdmin({
      listen: { host: "127.0.0.1", port: 0 },
      metrics: new Registry(),
      ready: async () => [],
      log: pino({ level: "silent" }),
    });
    try {
      for (const { startupProbe, livenessProbe, readinessProbe } of [container("production", "gateway")]) {
        for (const probe of [startupProbe, livenessProbe, readinessProbe]) {
          const response = await fetch(`http://${admin.address}${probe.httpGet.path}`);
          expect([probe.httpGet.path, response.status]).toEqual([probe.httpGet.path, 200]);
        }
        expect(readinessProbe.httpGet.path).toBe("/readyz");
        expect(livenessProbe.httpGet.path).toBe("/livez");
      }
    } finally {
      await admin.close();
    }
  });

  test("every pod meets the restricted Pod Security Standard and has a read-only file system", () => {
    for (const manifests of each()) {
      const pods = manifests.flatMap(({ kind, spec }) => (/^(Deployment|Job)$/.test(kind) ? [spec.template.spec] : []));
      expect(pods).toHaveLength(3);
      for (const pod of pods) {
        expect(pod).toMatchObject({
          automountServiceAccountToken: false,
          enableServiceLinks: false,
          securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
        });
        for (const { securityContext, resources } of pod.containers) {
          expect(securityContext).toEqual({
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ["ALL"] },
          });
          for (const bound of [resources.requests, resources.limits]) {
            expect(Object.keys(bound).sort()).toEqual(["cpu", "memory"]);
          }
        }
      }
    }
  });

  test("a pod starts before the one it replaces stops, and a stopping pod has time for its drain", () => {
    for (const tier of ["gateway", "inventory-svc"]) {
      const { spec } = deployment("production", tier);
      expect(spec.strategy.rollingUpdate).toEqual({ maxSurge: 1, maxUnavailable: 0 });
      const drainSeconds = Number(environment("production", tier).DRAIN_SECONDS);
      expect(spec.template.spec.terminationGracePeriodSeconds).toBeGreaterThan(drainSeconds);
      const budget = all("production", "PodDisruptionBudget").find(({ metadata }) => metadata.name.endsWith(tier))!;
      expect(budget.spec.maxUnavailable).toBe(1);
    }
  });

  test("each tier has at least three pods, or the number that the values fix", () => {
    const scalers = all("default values", "HorizontalPodAutoscaler");
    expect(scalers.map(({ spec }) => spec.minReplicas)).toEqual([3, 3]);
    // A number here would override the scaler at each upgrade.
    expect(deployment("default values", "gateway").spec.replicas).toBeUndefined();
    expect(all("staging", "HorizontalPodAutoscaler")).toEqual([]);
    expect(deployment("staging", "gateway").spec.replicas).toBe(2);
  });

  test.each<[string, string, ...Values[]]>([
    ["gateway", "3 to 5", "--set=gateway.replicas.max=5"],
    ["inventory-svc", "3", "--set=inventory-svc.replicas.max=3"],
    ["gateway", "2 to 4", `${chartFolder}/values-staging.yaml`, "--set=gateway.replicas.max=4"],
  ])("%s has %s replicas when the command line changes one number of the values", async (tier, expected, ...values) => {
    const manifests = await helm().render(...values);
    const spec = (kind: string) => manifests.find((manifest) => nameOf(manifest) === `${kind}/petstore-${tier}`)?.spec;
    const scaler = spec("HorizontalPodAutoscaler");
    const { replicas } = spec("Deployment");
    expect(scaler ? `${scaler.minReplicas} to ${scaler.maxReplicas}` : `${replicas}`).toBe(expected);
    expect(replicas === undefined).toBe(scaler !== undefined);
  });

  test("GATEWAY_REPLICAS is the largest number of gateways, so that shares never exceed the limits", () => {
    for (const variant of ["default values", "staging"]) {
      const scaler = all(variant, "HorizontalPodAutoscaler").find(({ metadata }) => metadata.name.endsWith("gateway"));
      const { spec } = deployment(variant, "gateway");
      const most = (scaler?.spec.maxReplicas ?? spec.replicas) + spec.strategy.rollingUpdate.maxSurge;
      expect(Number(environment(variant, "gateway").GATEWAY_REPLICAS)).toBe(most);
    }
  });

  test("pods are replaced when their settings change, and not otherwise", async () => {
    const sums = async (...values: Values[]) =>
      (await helm().render(...values))
        .filter(({ kind }) => kind === "Deployment")
        .map(({ spec }) => spec.template.metadata.annotations["checksum/settings"]);
    const [gateway, inventory] = await sums();
    expect(await sums({ migrate: { secret: "other" } })).toEqual([gateway, inventory]);
    const [otherGateway, sameInventory] = await sums(settings({ LOG_LEVEL: "warn" }));
    expect(otherGateway).not.toBe(gateway);
    expect(sameInventory).toBe(inventory);
  });
});
