import { execFile } from "node:child_process";
import { symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import type { Manifest } from "./helm.ts";
import { temporaryFolder } from "./stack.ts";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");

/** Packages with the types and validators of an API group. All other groups are in `kubernetes-models`. */
const packages: Readonly<Record<string, string>> = {
  "cert-manager.io": "@kubernetes-models/cert-manager",
  "gateway.networking.k8s.io": "@kubernetes-models/gateway-api",
  "monitoring.coreos.com": "@kubernetes-models/prometheus-operator",
};

/** Validates objects against the schemas of their APIs. @returns the faults, as `Kind/name: fault` */
export async function schemaFaults(manifests: readonly Manifest[]): Promise<string[]> {
  const faults: string[] = [];
  for (const manifest of manifests) {
    const { [manifest.kind]: Model } = await import(modulePath(manifest));
    try {
      new Model(manifest).validate();
    } catch (error) {
      faults.push(`${nameOf(manifest)}: ${(error as Error).message}`);
    }
  }
  return faults;
}

/**
 * Finds members that the APIs do not know, which Kubernetes drops silently. The compiler does the work: an object
 * literal may have only members of its type.
 *
 * @returns the faults, as `Kind/name: fault`
 */
export async function unknownMembers(manifests: readonly Manifest[]): Promise<string[]> {
  const lines = manifests.flatMap((manifest, index) => [
    `import type { I${manifest.kind} as T${index} } from "${modulePath(manifest)}";`,
    `export const o${index}: T${index} = ${JSON.stringify(manifest)};`,
  ]);
  const folder = await temporaryFolder("manifests");
  try {
    await symlink(join(root, "node_modules"), join(folder.path, "node_modules"));
    await writeFile(join(folder.path, "manifests.ts"), lines.join("\n"));
    const tsc = createRequire(import.meta.url)
      .resolve("typescript/package.json")
      .replace("package.json", "bin/tsc");
    const options = [
      "--noEmit",
      "--strict",
      "--skipLibCheck",
      "--target",
      "esnext",
      "--module",
      "nodenext",
      "--types",
      "",
    ];
    const { stdout } = await run(process.execPath, [tsc, ...options, "--pretty", "false", "manifests.ts"], {
      cwd: folder.path,
    }).catch((error: { stdout: string }) => error);
    return stdout.split("\n").flatMap((line) => {
      const [, number, fault] = /^manifests\.ts\((\d+),\d+\): error \w+: (.*)/.exec(line) ?? [];
      if (fault !== undefined) return `${nameOf(manifests[Math.floor((Number(number) - 1) / 2)]!)}: ${fault}`;
      return /error/.test(line) ? line : [];
    });
  } finally {
    await folder.remove();
  }
}

export function nameOf({ kind, metadata }: Manifest): string {
  return `${kind}/${metadata.name}`;
}

function modulePath({ apiVersion, kind }: Manifest): string {
  const [group = ""] = apiVersion.split("/");
  return `${packages[group] ?? "kubernetes-models"}/${apiVersion}/${kind}`;
}
