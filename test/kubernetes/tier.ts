/** Watches the pods of one tier of a release. */
import { until } from "../support/until.ts";
import type { ClusterApi, ClusterObject } from "./cluster-api.ts";
import type { Kubelets } from "./kubelets.ts";
import type { Release } from "./release.ts";

export interface Tier {
  serving(): ClusterObject[];
  /** Waits until the tier has this number of pods and no others, which all serve, with this tag of the image. */
  settles(count: number, tag?: string): Promise<void>;
  /** Returns the least number of pods that served while something was done. */
  fewestDuring(action: () => Promise<void>): Promise<number>;
}

export function watchTier(api: ClusterApi, kubelets: Kubelets, release: Release, tier = "gateway"): Tier {
  const labels = `?labelSelector=app.kubernetes.io/component=${tier}`;
  const serving = () => kubelets.serving(release.namespace, tier);
  const tags = () => serving().map(({ spec }) => spec.containers[0].image.split(":")[1]);
  return {
    serving,
    settles: async (count, tag = "1.0.0") => {
      const hasSettled = async () => {
        const all = await api.list(`${release.path("v1", "pods")}${labels}`);
        return all.length === count && tags().length === count && tags().every((each) => each === tag);
      };
      await until(hasSettled, { withinMs: 45_000, everyMs: 100 }).catch((cause) => {
        throw new Error(`${tier}: there are ${tags()}, and not ${count} of ${tag}`, { cause });
      });
    },
    fewestDuring: async (action) => {
      let fewest = serving().length;
      const stop = kubelets.onChange(() => {
        fewest = Math.min(fewest, serving().length);
      });
      await action().finally(stop);
      return fewest;
    },
  };
}
