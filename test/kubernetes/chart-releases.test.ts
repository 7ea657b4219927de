// Releases of the chart on the Kubernetes API, its controllers and its scheduler, with the Helm of two major versions.
import { join } from "node:path";
import { chartFolder } from "../support/chart.ts";
import { openHelm } from "../support/helm.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import type { ClusterApi } from "./cluster-api.ts";
import { startControlPlane } from "./control-plane.ts";
import { clusterPrograms, missing } from "./go-modules.ts";
import { type Kubelets, startKubelets } from "./kubelets.ts";
import { type PodMetrics, startPodMetrics } from "./pod-metrics.ts";
import { openRelease, type Release } from "./release.ts";

const helms = { "Helm 3": undefined, "Helm 4": "helm" };
const fixed = (count: number) => ({ gateway: { replicas: { min: count, max: count } } });
const version = (tag: string) => ({ image: { tag } });

(missing ? describe.skip : describe)(`the chart on Kubernetes${missing ? `, which cannot run ${missing}` : ""}`, () => {
  const stack = suiteStack();
  let api: ClusterApi;
  let kubelets: Kubelets;
  let metrics: PodMetrics;

  beforeAll(async () => {
    api = await startControlPlane(stack);
    kubelets = await startKubelets(stack, api);
    metrics = await startPodMetrics(stack, api, kubelets);
  }, 3_600_000);

  afterEach(() => {
    kubelets.conduct = () => undefined;
  });

  describe.each(Object.entries(helms))("by %s", (name, program) => {
    let open: () => Promise<Release>;
    let namespaces = 0;

    beforeAll(async () => {
      const helm = await openHelm(chartFolder, program && join(await clusterPrograms(), program));
      stack.defer(() => helm.remove());
      open = () => openRelease(api, helm, `${name.toLowerCase().replace(" ", "-")}-${++namespaces}`);
    }, 60_000);

    const tags = ({ namespace }: Release, tier = "gateway") =>
      kubelets.serving(namespace, tier).map(({ spec }) => spec.containers[0].image.split(":")[1]);

    /** Waits until a tier has just these pods, with this tag of the image. */
    const settles = async (release: Release, count: number, tag = "1.0.0") => {
      const { namespace } = release;
      await until(
        async () => {
          const pods = await api.list(release.path("v1", "pods"));
          const all = pods.filter(({ metadata }) => metadata.labels["app.kubernetes.io/component"] === "gateway");
          const serving = tags(release);
          return all.length === count && serving.length === count && serving.every((each) => each === tag);
        },
        { withinMs: 60_000, everyMs: 100 },
      ).catch((error) => {
        throw new Error(`${namespace}: ${tags(release)} and not ${count} of ${tag}`, { cause: error });
      });
    };

    /** Returns the least number of gateways that served while something was done. */
    const fewestDuring = async ({ namespace }: Release, action: () => Promise<void>) => {
      const count = () => kubelets.serving(namespace, "gateway").length;
      let fewest = count();
      const stop = kubelets.onChange(() => {
        fewest = Math.min(fewest, count());
      });
      await action();
      stop();
      return fewest;
    };

    test("a first installation migrates, and begins with the least number of pods", async () => {
      const release = await open();
      await release.upgrade();
      expect((await release.deployment("gateway")).spec.replicas).toBe(3);
      await settles(release, 3);
      await release.run("test");
    });

    test("an upgrade from a fixed number to a range and back keeps the pods that serve", async () => {
      const release = await open();
      await release.upgrade(fixed(4));
      await settles(release, 4);
      const fewest = await fewestDuring(release, async () => {
        await release.upgrade(version("2.0.0"));
        await settles(release, 4, "2.0.0");
        await release.upgrade(fixed(4));
        await settles(release, 4);
      });
      expect(fewest).toBe(4);
    });

    test("an upgrade keeps the number that the autoscaler has chosen", async () => {
      const release = await open();
      await release.upgrade();
      await settles(release, 3);
      metrics.useCpu(release.namespace, 4.2);
      await settles(release, 7);
      const fewest = await fewestDuring(release, async () => {
        await release.upgrade(version("2.0.0"));
        await settles(release, 7, "2.0.0");
      });
      expect(fewest).toBe(7);
    });
  });
});
