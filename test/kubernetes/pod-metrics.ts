/** Stands in for a metrics server: autoscalers read how much CPU each pod uses. */
import { setTimeout as delay } from "node:timers/promises";
import type { ClusterApi } from "./cluster-api.ts";
import { definitionsPath } from "./control-plane.ts";
import type { Kubelets } from "./kubelets.ts";

export interface PodMetrics {
  /** From now on, the gateways of this namespace, and of no other, share this number of cores. */
  useCpu(namespace: string, cores: number): void;
  /** Ends that. Afterwards no figure is written any more. */
  useNone(): Promise<void>;
}

const group = "metrics.k8s.io";
const version = "v1beta1";

/** The API server keeps the figures like any other object, and so no server of ours is needed behind it. */
export async function startPodMetrics(
  stack: AsyncDisposableStack,
  api: ClusterApi,
  kubelets: Kubelets,
): Promise<PodMetrics> {
  let used: { namespace: string; cores: number } | undefined;
  let isOver = false;
  const names = { plural: "pods", singular: "pod", kind: "PodMetrics", listKind: "PodMetricsList" };
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  const name = `${names.plural}.${group}`;
  await api.apply(`${definitionsPath}/${name}`, {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name, annotations: { "api-approved.kubernetes.io": "unapproved, for tests" } },
    spec: { group, scope: "Namespaced", names, versions: [{ name: version, served: true, storage: true, schema }] },
  });

  async function publish(): Promise<void> {
    if (used === undefined) return;
    const { namespace, cores } = used;
    const pods = kubelets.serving(namespace, "gateway");
    for (const { metadata, spec } of pods) {
      const usage = { cpu: `${Math.round((cores / pods.length) * 1000)}m`, memory: "200Mi" };
      await api.apply(`/apis/${group}/${version}/namespaces/${namespace}/pods/${metadata.name}`, {
        apiVersion: `${group}/${version}`,
        kind: names.kind,
        metadata: { name: metadata.name, labels: metadata.labels },
        timestamp: new Date().toISOString(),
        window: "10s",
        containers: [{ name: spec.containers[0].name, usage }],
      });
    }
  }
  let published = Promise.resolve();
  const publishing = (async () => {
    for (; !isOver; await delay(500)) {
      published = publish();
      await published;
    }
  })();
  stack.defer(async () => {
    isOver = true;
    await publishing;
  });
  return {
    useCpu: (namespace, cores) => {
      used = { namespace, cores };
    },
    useNone: async () => {
      used = undefined;
      await published;
    },
  };
}
