/** The programs of a Kubernetes cluster, built from their Go modules. */
import { copyFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { buildPrograms, downloadModule, go, goPrograms } from "../support/go-programs.ts";

const kubernetes = "1.34.3";
const helm4 = "4.3.1";
const operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0";

/** The definitions of the kinds that the chart uses besides those of Kubernetes: a module, and files in it. */
const definitions: Readonly<Record<string, readonly string[]>> = {
  "github.com/cert-manager/cert-manager@v1.21.2": ["deploy/crds/cert-manager.io_certificates.yaml"],
  "sigs.k8s.io/gateway-api@v1.6.3": ["config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"],
  [operator]: ["podmonitors", "prometheusrules"].map(
    (kind) => `example/prometheus-operator-crd/monitoring.coreos.com_${kind}.yaml`,
  ),
};

/** Three programs of Kubernetes, `helm`, and files named `*.yaml`. */
const programs = await goPrograms(`kubernetes-${kubernetes}-helm-${helm4}`, "test:kubernetes", async (folder) => {
  await buildKubernetes(folder);
  await go(folder, { GOBIN: folder }, "install", `helm.sh/helm/v4/cmd/helm@v${helm4}`);
  for (const [module, files] of Object.entries(definitions)) {
    const { Dir } = await downloadModule(folder, module);
    for (const file of files) await copyFile(join(Dir, file), join(folder, basename(file)));
  }
});

export const { missing, folder: clusterPrograms } = programs;

/** Its module replaces its parts by folders that it does not contain, so they are replaced by the published parts. */
async function buildKubernetes(target: string): Promise<void> {
  const [major, minor] = kubernetes.split(".");
  const named = Object.entries({ gitVersion: `v${kubernetes}`, gitMajor: major!, gitMinor: minor! });
  await buildPrograms(target, {
    module: "k8s.io/kubernetes",
    version: `v${kubernetes}`,
    packages: ["kube-apiserver", "kube-controller-manager", "kube-scheduler"].map((name) => `cmd/${name}`),
    change: (goMod) => goMod.replaceAll(/=> \.\/staging\/src\/(\S+)/g, `=> $1 ${kubernetes.replace(/^1\./, "v0.")}`),
    named: Object.fromEntries(named.map(([name, value]) => [`k8s.io/component-base/version.${name}`, value])),
  });
}
