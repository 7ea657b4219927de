// Releases of the chart on the Kubernetes API, its controllers and its scheduler, with the Helm of two major versions.
import { join } from "node:path";
import { besides, chartFolder, commandJob } from "../support/chart.ts";
import { type Helm, openHelm } from "../support/helm.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import type { ClusterApi } from "./cluster-api.ts";
import { startControlPlane } from "./control-plane.ts";
import { clusterPrograms, missing } from "./go-modules.ts";
import { type Kubelets, startKubelets } from "./kubelets.ts";
import { type PodMetrics, startPodMetrics } from "./pod-metrics.ts";
import { openRelease, type Release } from "./release.ts";
import { type Tier, watchTier } from "./tier.ts";

const helms = ["Helm 3", "Helm 4"] as const;
const waiting = { withinMs: 45_000, everyMs: 100 };
const fixed = (count: number) => ({ gateway: { replicas: { min: count, max: count } } });
const version = (tag: string) => ({ image: { tag } });
/** What the chart makes; only in the last row, each kind is another one's. */
const kinds: Readonly<Record<string, readonly string[]>> = {
  v1: ["configmaps", "pods", "services"],
  "apps/v1": ["deployments"],
  "autoscaling/v2": ["horizontalpodautoscalers"],
  "batch/v1": ["jobs"],
  "networking.k8s.io/v1": ["networkpolicies"],
  "policy/v1": ["poddisruptionbudgets"],
  "cert-manager.io/v1": ["certificates"],
  "gateway.networking.k8s.io/v1": ["httproutes"],
  "monitoring.coreos.com/v1": ["podmonitors", "prometheusrules"],
};

if (missing) console.warn(`The chart on Kubernetes cannot run ${missing}: skipped here.`);
(missing ? describe.skip : describe)(`the chart on Kubernetes${missing ? `, which cannot run ${missing}` : ""}`, () => {
  const stack = suiteStack();
  const opened = {} as Record<(typeof helms)[number], Helm>;
  let api: ClusterApi;
  let kubelets: Kubelets;
  let metrics: PodMetrics;
  let namespace: string;
  let namespaces = 0;

  beforeAll(async () => {
    api = await startControlPlane(stack);
    kubelets = await startKubelets(stack, api);
    metrics = await startPodMetrics(stack, api, kubelets);
    opened["Helm 3"] = await openHelm(chartFolder);
    opened["Helm 4"] = await openHelm(chartFolder, join(await clusterPrograms(), "helm"));
    for (const helm of Object.values(opened)) stack.defer(() => helm.remove());
  }, 3_600_000);

  beforeEach(() => {
    namespace = `namespace-${++namespaces}`;
  });

  afterEach(async () => {
    kubelets.conduct = () => undefined;
    await metrics.useNone();
    await api.remove(`/api/v1/namespaces/${namespace}`);
  });

  /** Opens a release in the namespace of this test. */
  const open = (name: (typeof helms)[number]) => openRelease(api, opened[name], namespace);

  /** Keeps the pods of migrations waiting. @returns a function that ends the wait */
  const holdMigrations = () => {
    const { promise, resolve } = Promise.withResolvers<"ends">();
    kubelets.conduct = (component) => (component === "migrate" ? promise : undefined);
    return () => resolve("ends");
  };
  const objects = async ({ path }: Release) => {
    const paths = Object.entries(kinds).flatMap(([version, plurals]) => plurals.map((plural) => path(version, plural)));
    const found = (await Promise.all(paths.map((each) => api.list(each)))).flat();
    return found.map(({ metadata }) => metadata.name).filter((name) => name !== "kube-root-ca.crt");
  };
  const untilMigrating = (release: Release) =>
    until(async () => (await migration(release))?.status.active === 1, waiting);
  const migration = ({ path }: Release) => api.get(path("batch/v1", "jobs", "petstore-migrate"));

  describe.each(helms)("by %s", (name) => {
    let release: Release;
    let gateways: Tier;

    beforeEach(async () => {
      release = await open(name);
      gateways = watchTier(api, kubelets, release);
    });

    /** Installs the release, and lets the autoscaler make five gateways of three. */
    const installAndScale = async () => {
      await release.upgrade();
      await gateways.settles(3);
      metrics.useCpu(namespace, 3);
      await gateways.settles(5);
    };

    test("a first installation migrates before anything else, and comes to its number of pods", async () => {
      const goOn = holdMigrations();
      const installation = release.upgrade();
      await untilMigrating(release);
      expect(await objects(release)).toEqual([
        expect.stringMatching(/^petstore-migrate-/),
        "petstore-migrate",
        "petstore-migrate",
      ]);
      goOn();
      await installation;
      await gateways.settles(3);
      await watchTier(api, kubelets, release, "inventory-svc").settles(3);
      expect(await release.run("test")).toMatch(/Phase: +Succeeded/);
    });

    test("an upgrade from a fixed number to a range and back keeps the pods that serve", async () => {
      await release.upgrade(fixed(4));
      await gateways.settles(4);
      const fewest = await gateways.fewestDuring(async () => {
        await release.upgrade(version("2.0.0"));
        await gateways.settles(4, "2.0.0");
        await release.upgrade(fixed(4));
        await gateways.settles(4);
      });
      expect(fewest).toBe(4);
    });

    test("an upgrade keeps the number that the autoscaler chooses during the migration", async () => {
      await release.upgrade();
      await gateways.settles(3);
      const goOn = holdMigrations();
      const upgrade = release.upgrade(version("2.0.0"));
      await untilMigrating(release);
      metrics.useCpu(namespace, 3);
      await gateways.settles(5);
      const fewest = await gateways.fewestDuring(async () => {
        goOn();
        await upgrade;
        await gateways.settles(5, "2.0.0");
      });
      expect(fewest).toBe(5);
    });

    test("an upgrade to other bounds moves the number into them", async () => {
      await release.upgrade(fixed(5));
      await gateways.settles(5);
      await release.upgrade({ gateway: { replicas: { max: 4 } } });
      await gateways.settles(4);
      await release.upgrade(fixed(2));
      await gateways.settles(2);
    });

    const scale = (tier: string, replicas: number) =>
      api.merge(`${release.path("apps/v1", "deployments", `petstore-${tier}`)}/scale`, { spec: { replicas } });

    test("an upgrade starts no pods of a stopped tier, and one that is started brings the others", async () => {
      await release.upgrade();
      await gateways.settles(3);
      await scale("gateway", 0);
      await gateways.settles(0);
      await release.upgrade(version("2.0.0"));
      await watchTier(api, kubelets, release, "inventory-svc").settles(3, "2.0.0");
      await gateways.settles(0);
      await scale("gateway", 1);
      await gateways.settles(3, "2.0.0");
    });

    test("a second region, whose pods cannot be ready, is upgraded with --wait while it is stopped", async () => {
      kubelets.conduct = (component) => (component === "migrate" ? undefined : "runs without being ready");
      await release.upgrade();
      for (const tier of ["gateway", "inventory-svc"]) await scale(tier, 0);
      await release.run("upgrade", chartFolder, "--wait", "--timeout=40s", "--set=image.tag=2.0.0");
      kubelets.conduct = () => undefined; // it is promoted
      await scale("gateway", 1);
      await gateways.settles(3, "2.0.0");
    });

    test("an upgrade after a change of a tier's secret replaces its pods, and those alone", async () => {
      const services = watchTier(api, kubelets, release, "inventory-svc");
      await release.upgrade(fixed(3));
      await gateways.settles(3);
      await services.settles(3);
      const uids = ({ serving }: Tier) => new Set(serving().map(({ metadata }) => metadata.uid));
      const before = [uids(gateways), uids(services)] as const;
      await release.upgrade(fixed(3));
      await release.setSecret("petstore-gateway", { KEY_PEPPER: "another-pepper-that-only-the-tests-know" });
      const fewest = await gateways.fewestDuring(async () => {
        await release.upgrade(fixed(3));
        const areNew = () => [...uids(gateways)].every((uid) => !before[0].has(uid));
        await until(areNew, waiting);
        await gateways.settles(3);
      });
      expect(fewest).toBe(3);
      expect(uids(services)).toEqual(before[1]);
    });

    test("a migration that fails leaves the version before as it is, and the next upgrade migrates", async () => {
      await release.upgrade();
      await gateways.settles(3);
      kubelets.conduct = (component) => (component === "migrate" ? "fails" : undefined);
      // The job tries again after 10 s.
      const upgrade = release.upgrade(version("2.0.0"), { migrate: { deadlineSeconds: 3 } });
      await expect(upgrade).rejects.toThrow(/pre-upgrade hooks failed/);
      expect((await migration(release))?.status.failed).toBe(1);
      await gateways.settles(3);
      kubelets.conduct = () => undefined;
      await release.upgrade(version("2.0.0"));
      expect(await migration(release)).toBeUndefined();
      await gateways.settles(3, "2.0.0");
    });

    test("a roll-back takes what served only by its number, as the one before may have failed", async () => {
      await release.upgrade();
      await gateways.settles(3);
      kubelets.conduct = (component) => (component === "migrate" ? "fails" : undefined);
      const failing = { migrate: { deadlineSeconds: 3 } };
      await expect(release.upgrade(version("2.0.0"), failing)).rejects.toThrow(/pre-upgrade hooks failed/);
      kubelets.conduct = (component) => (component === "migrate" ? undefined : "runs without being ready");
      await release.upgrade(version("3.0.0"));
      kubelets.conduct = () => undefined;
      await release.run("rollback");
      await gateways.settles(3, "2.0.0");
      await release.run("rollback", "1");
      await gateways.settles(3);
    });

    test("a migration that Helm no longer waits for is replaced by that of the next upgrade", async () => {
      await release.upgrade();
      await gateways.settles(3);
      holdMigrations();
      await expect(release.run("upgrade", chartFolder, "--timeout=2s")).rejects.toThrow(/hooks failed/);
      const { metadata, status } = (await migration(release))!;
      expect(status.active).toBe(1);
      const goOn = holdMigrations();
      const upgrade = release.upgrade(version("2.0.0"));
      await until(async () => ((await migration(release))?.metadata.uid ?? metadata.uid) !== metadata.uid, waiting);
      goOn();
      await upgrade;
      await gateways.settles(3, "2.0.0");
    });

    test("a version that never gets ready takes no pod away, and a roll-back keeps their number", async () => {
      await installAndScale();
      kubelets.conduct = (_, image) => (image.endsWith("gateway:2.0.0") ? "runs without being ready" : undefined);
      const fewest = await gateways.fewestDuring(async () => {
        await release.upgrade(version("2.0.0"));
        await watchTier(api, kubelets, release, "inventory-svc").settles(3, "2.0.0");
        await release.run("rollback", "1");
        await gateways.settles(5);
      });
      expect(fewest).toBe(5);
    });

    test("the cluster takes all that production has, and an uninstallation leaves only secrets", async () => {
      await release.upgrade(`${chartFolder}/values-production.yaml`, version("1.0.0"));
      await gateways.settles(3);
      for (const [apiVersion, plurals] of Object.entries(kinds)) {
        for (const plural of plurals.filter((each) => each !== "jobs")) {
          expect({ plural, count: (await api.list(release.path(apiVersion, plural))).length }).not.toMatchObject({
            count: 0,
          });
        }
      }
      await release.run("uninstall");
      await until(async () => (await objects(release)).length === 0, waiting);
      const secrets = await api.list(release.path("v1", "secrets"));
      expect(secrets.map(({ metadata }) => metadata.name)).toEqual(release.secrets);
    });
  });

  test("the job for commands in kubernetes.md runs beside a release and leaves it as it is", async () => {
    const release = await open("Helm 4");
    const gateways = watchTier(api, kubelets, release);
    await release.upgrade();
    await gateways.settles(3);
    const fewest = await gateways.fewestDuring(async () => {
      const { metadata } = await api.create(release.path("batch/v1", "jobs"), commandJob());
      const job = () => api.get(release.path("batch/v1", "jobs", metadata.name));
      await until(async () => (await job())!.status.succeeded === 1, waiting);
    });
    expect(fewest).toBe(3);
  });

  test("Helm 4 takes over a release of Helm 3, and gives it back", async () => {
    const [first, second] = [await open("Helm 3"), await open("Helm 4")];
    const gateways = watchTier(api, kubelets, first);
    await first.upgrade(version("1.0.0"));
    await gateways.settles(3);
    metrics.useCpu(namespace, 3);
    await gateways.settles(5);
    const fewest = await gateways.fewestDuring(async () => {
      await second.upgrade(version("2.0.0"));
      await gateways.settles(5, "2.0.0");
      await first.upgrade(version("3.0.0"));
      await gateways.settles(5, "3.0.0");
      await second.run("rollback", "1");
      await gateways.settles(5);
    });
    expect(fewest).toBe(5);
  });

  test("the pods of a tier are on all nodes, and the drain of a node takes one at a time", async () => {
    const release = await open("Helm 4");
    const gateways = watchTier(api, kubelets, release);
    await release.upgrade(version("1.0.0"));
    await gateways.settles(3);
    await release.upgrade(version("2.0.0"));
    await gateways.settles(3, "2.0.0");
    expect(new Set(gateways.serving().map(({ spec }) => spec.nodeName)).size).toBe(3);

    kubelets.conduct = () => "runs without being ready"; // the pod that takes the place of the first
    const evict = ({ metadata: { name } }: { metadata: { name: string } }) =>
      api.create(`${release.path("v1", "pods", name)}/eviction`, {
        apiVersion: "policy/v1",
        kind: "Eviction",
        metadata: { name },
      });
    const [first, second] = gateways.serving();
    await evict(first!);
    await expect(evict(second!)).rejects.toThrow(/429.*disruption budget/);
  });

  test("what operators give to pods besides places them and is in them", async () => {
    const release = await open("Helm 4");
    const { priorityClassName, nodeSelector } = besides;
    await api.merge("/api/v1/nodes/node-b", {
      metadata: { labels: nodeSelector },
      spec: { taints: [{ key: "example.com/pool", value: "petstore", effect: "NoSchedule" }] },
    });
    await api.apply(`/apis/scheduling.k8s.io/v1/priorityclasses/${priorityClassName}`, {
      apiVersion: "scheduling.k8s.io/v1",
      kind: "PriorityClass",
      metadata: { name: priorityClassName },
      value: 1000,
    });
    const authorities = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "authorities" } };
    await api.apply(release.path("v1", "configmaps", "authorities"), authorities);
    await release.upgrade({ gateway: besides, "inventory-svc": besides, migrate: besides });
    const gateways = watchTier(api, kubelets, release);
    await gateways.settles(3);
    for (const { spec } of gateways.serving()) {
      expect({ node: spec.nodeName, priority: spec.priority }).toEqual({ node: "node-b", priority: 1000 });
    }
  });
});
