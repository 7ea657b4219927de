/** A release of the chart in a namespace of its own, as operators prepare one. */
import { chartFolder } from "../support/chart.ts";
import type { Helm, Values } from "../support/helm.ts";
import { until } from "../support/until.ts";
import type { ClusterApi } from "./cluster-api.ts";
import { deployer } from "./control-plane.ts";

export interface Release {
  readonly namespace: string;
  /** The names of those that are there before the release, in the order of the alphabet. */
  readonly secrets: readonly string[];
  /** Installs or upgrades. */
  upgrade(...values: Values[]): Promise<void>;
  /** Runs another command for the release. */
  run(command: string, ...args: string[]): Promise<string>;
  /** The path of an object of this namespace, as in `path("apps/v1", "deployments", "petstore-gateway")`. */
  path(version: string, plural: string, name?: string): string;
  setSecret(name: string, values: Readonly<Record<string, string>>): Promise<void>;
}

const url = "mysql://u:p@database.example:3306/petstore";
const secrets: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "petstore-migrate": { GATEWAY_DATABASE_URL: url, INVENTORY_DATABASE_URL: url },
  "petstore-inventory-svc": { INVENTORY_DATABASE_URL: url },
  "petstore-gateway": { GATEWAY_DATABASE_URL: url, KEY_PEPPER: "a-pepper-that-only-the-tests-know", REDIS_URL: "" },
  // What cert-manager makes of the certificates of the chart.
  "petstore-gateway-tls": { "tls.crt": "", "tls.key": "", "ca.crt": "" },
  "petstore-inventory-svc-tls": { "tls.crt": "", "tls.key": "", "ca.crt": "" },
};

/**
 * Makes a namespace that admits no pod with more rights than "restricted", with the secrets that the chart needs. Helm
 * has the role `admin` there, and none elsewhere.
 */
export async function openRelease(api: ClusterApi, helm: Helm, namespace: string): Promise<Release> {
  const path: Release["path"] = (version, plural, name) =>
    [version === "v1" ? "/api" : "/apis", version, "namespaces", namespace, plural, name].filter(Boolean).join("/");
  const restricted = ["enforce", "warn"].map((mode) => [`pod-security.kubernetes.io/${mode}`, "restricted"]);
  await api.apply(`/api/v1/namespaces/${namespace}`, {
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name: namespace, labels: Object.fromEntries(restricted) },
  });
  const group = "rbac.authorization.k8s.io";
  await api.apply(path(`${group}/v1`, "rolebindings", deployer.name), {
    apiVersion: `${group}/v1`,
    kind: "RoleBinding",
    metadata: { name: deployer.name },
    roleRef: { apiGroup: group, kind: "ClusterRole", name: "admin" },
    subjects: [{ apiGroup: group, kind: "User", name: deployer.name }],
  });
  // The server and the controllers learn of roles a moment later.
  await until(() => mayList(api, namespace, "", "secrets"), { withinMs: 45_000, everyMs: 100 });
  await until(() => mayList(api, namespace, "cert-manager.io", "certificates"), { withinMs: 45_000, everyMs: 100 });
  const setSecret: Release["setSecret"] = (name, stringData) =>
    api.apply(path("v1", "secrets", name), { apiVersion: "v1", kind: "Secret", metadata: { name }, stringData });
  for (const [name, values] of Object.entries(secrets)) await setSecret(name, values);

  const flags = [
    "--kube-apiserver",
    api.url,
    "--kube-ca-file",
    api.ca,
    "--kube-token",
    deployer.token,
    "-n",
    namespace,
  ];
  const upgrade: Release["upgrade"] = async (...values) => {
    const { stderr } = await helm.run("upgrade", ["--install", "petstore", chartFolder, ...flags], ...values);
    // Kubernetes takes pods that it will not admit, and only warns of them.
    if (/warning/i.test(stderr)) throw new Error(stderr);
  };
  return {
    namespace,
    secrets: Object.keys(secrets).sort(),
    upgrade,
    run: async (command, ...args) => (await helm.run(command, ["petstore", ...args, ...flags])).stdout,
    path,
    setSecret,
  };
}

async function mayList(api: ClusterApi, namespace: string, group: string, resource: string): Promise<boolean> {
  const review = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SubjectAccessReview",
    spec: { user: deployer.name, resourceAttributes: { namespace, verb: "list", group, resource } },
  });
  return review.status.allowed;
}
