/** Stands in for the kubelets of a cluster's nodes: it says of each pod that it runs, is ready, ends or fails. */
import { setTimeout as delay } from "node:timers/promises";
import type { ClusterApi, ClusterObject } from "./cluster-api.ts";

type Pod = ClusterObject;

/** What the container of a pod does, once it has what the pod names. */
type Conduct = "serves" | "runs without being ready" | "ends" | "fails";

export interface Kubelets {
  /** Decides what the pod of a component does, now or later. Default: tiers serve, and all others end. */
  conduct: (component: string, image: string) => Conduct | undefined | Promise<Conduct>;
  /** The pods of a component that serve: they are ready and have not been told to stop. */
  serving(namespace: string, component: string): Pod[];
  /** Calls back at each change of any pod. @returns a function that ends it */
  onChange(callback: () => void): () => void;
}

const zones = ["a", "b", "c"];
/** How long a container takes to become ready, and to stop. */
const startMs = 250;
const stopMs = 250;

export async function startKubelets(stack: AsyncDisposableStack, api: ClusterApi): Promise<Kubelets> {
  const pods = new Map<string, Pod>();
  const begun = new Set<string>();
  const listeners = new Set<() => void>();
  let addresses = 0;
  let isOver = false;
  stack.defer(() => {
    isOver = true;
  });

  const statusOf = (pod: Pod, conduct: Conduct) => {
    const [container] = pod.spec.containers;
    const isReady = conduct === "serves";
    const isRunning = isReady || conduct === "runs without being ready";
    const exitCode = conduct === "ends" ? 0 : 1;
    const at = new Date().toISOString();
    const podIP = `10.1.${addresses >> 8}.${addresses++ & 255}`;
    return {
      phase: isRunning ? "Running" : exitCode === 0 ? "Succeeded" : "Failed",
      podIP,
      podIPs: [{ ip: podIP }],
      startTime: at,
      conditions: ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map((type) => {
        const holds = isReady || !type.endsWith("Ready");
        return { type, status: holds ? "True" : "False", lastTransitionTime: at };
      }),
      containerStatuses: [
        {
          name: container.name,
          image: container.image,
          imageID: "",
          ready: isReady,
          started: isRunning,
          restartCount: 0,
          state: isRunning
            ? { running: { startedAt: at } }
            : { terminated: { exitCode, startedAt: at, finishedAt: at } },
        },
      ],
    };
  };

  async function begin(pod: Pod): Promise<void> {
    const path = pathOf(pod);
    for (; !(await hasItsObjects(api, pod)); await delay(100)) if (!pods.has(pod.metadata.uid)) return;
    await delay(startMs);
    const component = componentOf(pod);
    const usual = pod.spec.restartPolicy === "Always" ? "serves" : "ends";
    const conduct = (await kubelets.conduct(component, pod.spec.containers[0].image)) ?? usual;
    await api.merge(`${path}/status`, { status: statusOf(pod, conduct) });
  }

  async function end(pod: Pod): Promise<void> {
    await delay(stopMs);
    await api.remove(pathOf(pod), { gracePeriodSeconds: 0, preconditions: { uid: pod.metadata.uid } });
  }

  /** Does a step for a pod once. A pod that goes meanwhile is no fault. */
  const once = (what: string, pod: Pod, step: (pod: Pod) => Promise<void>) => {
    const key = `${what} ${pod.metadata.uid}`;
    if (begun.has(key)) return;
    begun.add(key);
    step(pod).catch((error) => {
      if (!isOver && pods.has(pod.metadata.uid)) throw error;
    });
  };

  const kubelets: Kubelets = {
    conduct: () => undefined,
    serving: (namespace, component) =>
      [...pods.values()].filter((pod) => {
        return pod.metadata.namespace === namespace && componentOf(pod) === component && isServing(pod);
      }),
    onChange: (callback) => {
      listeners.add(callback);
      return () => listeners.delete(callback);
    },
  };

  for (const zone of zones) await addNode(api, zone);
  await api.watch("/api/v1/pods", (pod, isGone) => {
    if (isGone) pods.delete(pod.metadata.uid);
    else pods.set(pod.metadata.uid, pod);
    if (!isGone && pod.spec.nodeName) {
      if (pod.metadata.deletionTimestamp) once("end", pod, end);
      else once("begin", pod, begin);
    }
    for (const listener of listeners) listener();
  });
  return kubelets;
}

function isServing({ metadata, status }: Pod): boolean {
  const ready = status.conditions?.find(({ type }: { type: string }) => type === "Ready");
  return ready?.status === "True" && metadata.deletionTimestamp === undefined;
}

const componentOf = ({ metadata }: Pod) => metadata.labels["app.kubernetes.io/component"] ?? "";
const pathOf = ({ metadata }: Pod) => `/api/v1/namespaces/${metadata.namespace}/pods/${metadata.name}`;

async function addNode(api: ClusterApi, zone: string): Promise<void> {
  const name = `node-${zone}`;
  const labels = { "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone };
  const size = { cpu: "64", memory: "256Gi", pods: "200" };
  const conditions = [{ type: "Ready", status: "True", reason: "KubeletReady", message: "", ...heard() }];
  await api.apply(`/api/v1/nodes/${name}`, { apiVersion: "v1", kind: "Node", metadata: { name, labels } });
  await api.merge(`/api/v1/nodes/${name}/status`, { status: { capacity: size, allocatable: size, conditions } });
}

function heard() {
  const now = new Date().toISOString();
  return { lastHeartbeatTime: now, lastTransitionTime: now };
}

/** Whether the ConfigMaps and Secrets that a pod names are there, with the keys that it names. */
async function hasItsObjects(api: ClusterApi, { metadata, spec }: Pod): Promise<boolean> {
  const has = async (kind: string, name: string, key?: string) => {
    const object = await api.get(`/api/v1/namespaces/${metadata.namespace}/${kind}/${name}`);
    return object !== undefined && (key === undefined || object.data?.[key] !== undefined);
  };
  for (const { configMap, secret } of spec.volumes ?? []) {
    if (configMap && !(await has("configmaps", configMap.name))) return false;
    if (secret && !(await has("secrets", secret.secretName))) return false;
  }
  for (const { env = [], envFrom = [] } of spec.containers) {
    for (const { configMapRef } of envFrom) if (!(await has("configmaps", configMapRef.name))) return false;
    for (const { valueFrom } of env) {
      const key = valueFrom?.secretKeyRef;
      if (key && !key.optional && !(await has("secrets", key.name, key.key))) return false;
    }
  }
  return true;
}
