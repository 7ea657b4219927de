/** Builds the programs of a Kubernetes cluster from their Go modules, and keeps them from one run to the next. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { testCache } from "../support/debian-sid.ts";
import { findProgram } from "../support/server-programs.ts";

const run = promisify(execFile);

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

/** The folder of what has been built: three programs of Kubernetes, `helm`, and files named `*.yaml`. */
const folder = join(await testCache(), `kubernetes-${kubernetes}-helm-${helm4}`);

/** Why there is no cluster on this machine; undefined where there is one, or where this run may build it. */
export const missing = whatIsMissing();

function whatIsMissing(): string | undefined {
  if (existsSync(folder)) return undefined;
  if (findProgram(["go"]) === undefined) return "without Go";
  return process.env.FAULTS === "long" ? undefined : "before `npm run test:kubernetes` has built its programs";
}

/** Returns the folder, which is filled first where it is missing; that takes minutes. */
export async function clusterPrograms(): Promise<string> {
  if (existsSync(folder)) return folder;
  console.warn(`The tests need Kubernetes ${kubernetes} and Helm ${helm4}: building them into ${folder}.`);
  const unfinished = await mkdtemp(join(await testCache(), "building-"));
  try {
    await buildKubernetes(unfinished);
    await go(unfinished, { GOBIN: unfinished }, "install", `helm.sh/helm/v4/cmd/helm@v${helm4}`);
    for (const [module, files] of Object.entries(definitions)) {
      const { Dir } = await download(unfinished, module);
      for (const file of files) await copyFile(join(Dir, file), join(unfinished, basename(file)));
    }
    await rename(unfinished, folder);
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
  return folder;
}

/** Its module replaces its parts by folders that it does not contain, so they are replaced by the published parts. */
async function buildKubernetes(target: string): Promise<void> {
  const { Dir } = await download(target, `k8s.io/kubernetes@v${kubernetes}`);
  const module = join(target, "module");
  await mkdir(module);
  const text = (await readFile(join(Dir, "go.mod"), "utf8"))
    .replace("module k8s.io/kubernetes", "module petstore-tests")
    .replaceAll(/=> \.\/staging\/src\/(\S+)/g, `=> $1 ${kubernetes.replace(/^1\./, "v0.")}`);
  await writeFile(join(module, "go.mod"), `${text}\nrequire k8s.io/kubernetes v${kubernetes}\n`);
  await writeFile(join(module, "go.sum"), await readFile(join(Dir, "go.sum")));
  const programs = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
  const packages = programs.map((name) => `k8s.io/kubernetes/cmd/${name}`);
  const [major, minor] = kubernetes.split(".");
  const named = Object.entries({ gitVersion: `v${kubernetes}`, gitMajor: major, gitMinor: minor });
  const link = ["-s", "-w", ...named.map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`)];
  await go(module, {}, "build", "-mod=mod", `-ldflags=${link.join(" ")}`, "-o", target, ...packages);
  await rm(module, { recursive: true });
}

async function download(cwd: string, module: string): Promise<{ Dir: string }> {
  return JSON.parse(await go(cwd, {}, "mod", "download", "-json", module));
}

/** Runs the command `go`, after whatever else wants this machine's processors. */
async function go(cwd: string, env: NodeJS.ProcessEnv, ...args: string[]): Promise<string> {
  const options = { cwd, env: { ...process.env, ...env }, maxBuffer: 64 * 1024 * 1024 };
  return (await run("nice", ["go", ...args], options)).stdout;
}
