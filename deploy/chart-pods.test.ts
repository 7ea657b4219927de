import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { pino } from "pino";
import { Registry } from "prom-client";
import { readGatewayConfig } from "../gateway/config.ts";
import { readInventoryConfig } from "../inventory-svc/config.ts";
import { listenOn, startAdmin } from "../runtime/admin.ts";
import { besides, chartFolder, digest, settings, suiteChart, variants } from "../test/support/chart.ts";
import type { Manifest, Values } from "../test/support/helm.ts";
import { nameOf } from "../test/support/kubernetes.ts";

describe("pods of the chart", () => {
  const { rendered, each, all, deployment, container, environment, helm } = suiteChart();
  /** The pods that there may be, each with its metadata. */
  const podsOf = (manifests: readonly Manifest[]): Pick<Manifest, "metadata" | "spec">[] =>
    manifests.flatMap((manifest) => {
      if (manifest.kind === "Pod") return manifest;
      return /^(Deployment|Job)$/.test(manifest.kind) ? manifest.spec.template : [];
    });
  const byTest = (a: Pick<Manifest, "spec">, b: Pick<Manifest, "spec">) => isTest(b) - isTest(a);
  const isTest = ({ spec }: Pick<Manifest, "spec">) => Number(spec.containers[0].name === "test");

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
      checkReady: async () => [],
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
      const pods = podsOf(manifests).map(({ spec }) => spec);
      expect(pods).toHaveLength(4);
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
    const bounds = (variant: string) =>
      all(variant, "HorizontalPodAutoscaler").map(({ spec }) => [spec.minReplicas, spec.maxReplicas]);
    expect(bounds("default values")).toEqual([
      [3, 9],
      [3, 6],
    ]);
    expect(bounds("staging")).toEqual([
      [2, 2],
      [2, 2],
    ]);
  });

  test("no Deployment gives a number of pods, which would override the autoscaler when applied", () => {
    for (const variant of rendered.keys()) {
      for (const { spec } of all(variant, "Deployment")) expect(spec.replicas).toBeUndefined();
    }
  });

  test.each<[string, string, ...Values[]]>([
    ["gateway", "3 to 5", "--set=gateway.replicas.max=5"],
    ["inventory-svc", "3 to 3", "--set=inventory-svc.replicas.max=3"],
    ["gateway", "2 to 4", `${chartFolder}/values-staging.yaml`, "--set=gateway.replicas.max=4"],
  ])("%s has %s replicas when the command line changes one number of the values", async (tier, expected, ...values) => {
    const manifests = await helm().render(...values);
    const scaler = manifests.find((manifest) => nameOf(manifest) === `HorizontalPodAutoscaler/petstore-${tier}`)!;
    expect(`${scaler.spec.minReplicas} to ${scaler.spec.maxReplicas}`).toBe(expected);
  });

  test("GATEWAY_REPLICAS is the largest number of gateways, so that shares never exceed the limits", () => {
    for (const variant of ["default values", "staging"]) {
      const scaler = all(variant, "HorizontalPodAutoscaler").find(({ metadata }) => metadata.name.endsWith("gateway"))!;
      const { spec } = deployment(variant, "gateway");
      const most = scaler.spec.maxReplicas + spec.strategy.rollingUpdate.maxSurge;
      expect(Number(environment(variant, "gateway").GATEWAY_REPLICAS)).toBe(most);
    }
  });

  test("pods of both tiers and of the migration get what the values add for them", () => {
    const { podAnnotations, extraEnv, extraVolumes, extraVolumeMounts, ...placed } = besides;
    const [test, ...pods] = podsOf(rendered.get("what pods get besides")!).toSorted(byTest);
    expect(pods).toHaveLength(3);
    for (const { metadata, spec } of pods) {
      expect(metadata.annotations).toMatchObject(podAnnotations);
      expect(spec).toMatchObject(placed);
      const [{ env, volumeMounts }] = spec.containers;
      expect(env.length).toBeGreaterThan(extraEnv.length);
      expect(env.slice(-extraEnv.length)).toEqual(extraEnv);
      expect(volumeMounts).toEqual(expect.arrayContaining(extraVolumeMounts));
      expect(spec.volumes).toEqual(expect.arrayContaining(extraVolumes));
    }
    expect(test!.spec).toMatchObject(placed); // it runs where the gateways do
    const withoutTls = deployment("what pods get besides, without TLS", "gateway").spec.template.spec;
    expect([withoutTls.volumes, withoutTls.containers[0].volumeMounts]).toEqual([extraVolumes, extraVolumeMounts]);
  });

  test("an image with a digest is pulled by that, and any other by its tag", () => {
    const images = podsOf(rendered.get("images by digest")!).map(({ spec }) => spec.containers[0].image);
    const [gateway, migrate] = ["gateway", "migrate"].map((name) => `registry.example/petstore-${name}@${digest}`);
    const service = expect.stringMatching(/^registry\.example\/petstore-inventory-svc:\d/);
    expect(images.toSorted()).toEqual([gateway, gateway, service, migrate]);
  });

  test("the pod of helm test passes with a gateway that answers, and fails with any other answer", async () => {
    const { command, args } = podsOf(rendered.get("production")!).toSorted(byTest)[0]!.spec.containers[0];
    const run = async (statuses: Record<string, number>) => {
      const server = createServer(({ url }, response) => void response.writeHead(statuses[url!] ?? 404).end());
      const env = {
        PATH: process.env.PATH,
        GATEWAY: `http://${await listenOn(server, { host: "127.0.0.1", port: 0 })}`,
      };
      expect(command[0]).toBe("node");
      const [code] = await once(spawn(process.execPath, [...command.slice(1), ...args], { env }), "exit");
      server.close();
      return code;
    };
    expect(await run({ "/openapi.json": 200, "/v1/inventory": 401 })).toBe(0);
    expect(await run({ "/openapi.json": 200, "/v1/inventory": 503 })).toBe(1);
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
