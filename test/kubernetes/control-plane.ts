/** Starts the processes of a Kubernetes cluster that keep its objects and act on them. No process runs its pods. */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parse, stringify } from "yaml";
import { createAuthority } from "../support/certificates.ts";
import { startChild } from "../support/children.ts";
import { freePort } from "../support/ports.ts";
import { serverProgram } from "../support/server-programs.ts";
import { temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { type ClusterAccess, type ClusterApi, openClusterApi } from "./cluster-api.ts";
import { clusterPrograms } from "./go-modules.ts";

const token = "a-token-that-only-the-tests-know";
/** An account that may do nothing until a namespace gives it a role. */
export const deployer = { name: "deployer", token: "another-token-that-only-the-tests-know" };
export const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/** Starts etcd, the API server, the controllers and the scheduler. Autoscalers look at the CPU use each second. */
export async function startControlPlane(stack: AsyncDisposableStack): Promise<ClusterApi> {
  const programs = await clusterPrograms();
  const etcd = await serverProgram("etcd");
  const folder = await temporaryFolder("kubernetes");
  stack.defer(() => folder.remove());
  const path = (name: string) => join(folder.path, name);
  const authority = await createAuthority(stack);
  const { cert, key, ca } = await authority.issue({ names: ["IP:127.0.0.1"] });
  const accounts = [`${token},tests,tests,system:masters`, `${deployer.token},${deployer.name},${deployer.name}`];
  await writeFile(path("tokens"), `${accounts.join("\n")}\n`, { mode: 0o600 });

  const start = (program: string, flags: Readonly<Record<string, string>>) => {
    const args = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
    const env = { PATH: process.env.PATH, HOME: folder.path };
    const child = startChild(program, args, { name: program, cwd: folder.path, env });
    stack.defer(() => child.kill("SIGKILL"));
    return child;
  };

  const [clients, peers, port] = [await freePort(), await freePort(), await freePort()];
  start(etcd, {
    "data-dir": path("etcd"),
    "listen-client-urls": `http://127.0.0.1:${clients}`,
    "advertise-client-urls": `http://127.0.0.1:${clients}`,
    "listen-peer-urls": `http://127.0.0.1:${peers}`,
    "unsafe-no-fsync": "true", // nothing here outlives the run
  });
  const server = start(join(programs, "kube-apiserver"), {
    "etcd-servers": `http://127.0.0.1:${clients}`,
    "bind-address": "127.0.0.1",
    "secure-port": `${port}`,
    "tls-cert-file": cert,
    "tls-private-key-file": key,
    "token-auth-file": path("tokens"),
    "authorization-mode": "RBAC",
    "service-account-issuer": "https://kubernetes.example",
    "service-account-key-file": cert,
    "service-account-signing-key-file": key,
    "service-cluster-ip-range": "10.96.0.0/16",
    "endpoint-reconciler-type": "none", // it would refuse a loopback address
  });
  const access = { url: `https://127.0.0.1:${port}`, ca, token };
  const api = await openClusterApi(stack, access);
  let hasEnded = false;
  void server.exited.then(() => {
    hasEnded = true;
  });
  const answers = async () => {
    if (hasEnded) throw new Error(server.output());
    return (await api.get("/api/v1/namespaces/kube-system").catch(() => undefined)) !== undefined;
  };
  await until(answers, { withinMs: 120_000, everyMs: 100 });

  const kubeconfig = path("kubeconfig");
  await writeFile(kubeconfig, kubeconfigOf(access), { mode: 0o600 });
  start(join(programs, "kube-controller-manager"), {
    kubeconfig,
    "leader-elect": "false",
    "secure-port": "0",
    "service-account-private-key-file": key,
    "root-ca-file": ca,
    "node-monitor-grace-period": "24h", // the stand-ins for kubelets say only once that they are there
    "horizontal-pod-autoscaler-sync-period": "1s",
    "horizontal-pod-autoscaler-initial-readiness-delay": "0s",
    "horizontal-pod-autoscaler-cpu-initialization-period": "0s",
  });
  start(join(programs, "kube-scheduler"), { kubeconfig, "leader-elect": "false", "secure-port": "0" });

  const groups = new Set<string>();
  for (const name of await readdir(programs)) {
    if (!name.endsWith(".yaml")) continue;
    const definition = parse(await readFile(join(programs, name), "utf8"));
    await api.apply(`${definitionsPath}/${definition.metadata.name}`, definition);
    groups.add(definition.spec.group);
  }
  await letAdminsUse(api, [...groups]);
  return api;
}

/** Adds kinds to the role `admin`, as those who bring them do. */
async function letAdminsUse(api: ClusterApi, apiGroups: readonly string[]): Promise<void> {
  const name = "more-kinds";
  await api.apply(`/apis/rbac.authorization.k8s.io/v1/clusterroles/${name}`, {
    apiVersion: "rbac.authorization.k8s.io/v1",
    kind: "ClusterRole",
    metadata: { name, labels: { "rbac.authorization.k8s.io/aggregate-to-admin": "true" } },
    rules: [{ apiGroups, resources: ["*"], verbs: ["*"] }],
  });
}

function kubeconfigOf({ url, ca }: ClusterAccess): string {
  return stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "tests", cluster: { server: url, "certificate-authority": ca } }],
    users: [{ name: "tests", user: { token } }],
    contexts: [{ name: "tests", context: { cluster: "tests", user: "tests" } }],
    "current-context": "tests",
  });
}
