import { execFile } from "node:child_process";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { promisify } from "node:util";
import { unzipSync } from "fflate";
import { parseAllDocuments } from "yaml";
import { findProgram } from "./server-programs.ts";
import { type TemporaryFolder, temporaryFolder } from "./stack.ts";

const run = promisify(execFile);

/** A rendered object of Kubernetes. Only its head is typed; the tests know the paths below it. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  // biome-ignore lint/suspicious/noExplicitAny: a tree of any shape, which is checked against its schema
  readonly spec: any;
  readonly data?: Readonly<Record<string, string>>;
}

/** A file of values, an object of values, or an argument such as `--set=a.b=5`, whose numbers have another type. */
export type Values = string | object;

export interface Helm {
  /** Renders the chart. @throws Error with Helm's message when it refuses */
  render(...values: Values[]): Promise<Manifest[]>;
  /** Runs a command with these values. @returns what it wrote; warnings are in `stderr` */
  run(command: string, args: readonly string[], ...values: Values[]): Promise<{ stdout: string; stderr: string }>;
  /** Runs `helm lint`, with warnings as errors. */
  lint(...values: Values[]): Promise<void>;
  remove(): Promise<void>;
}

/**
 * Opens a chart with a program, or the Helm of this machine, or the one that an npm package has for Linux on x64.
 *
 * @throws Error that names the choices when there is none
 */
export async function openHelm(chart: string, given?: string): Promise<Helm> {
  const folder = await temporaryFolder("helm");
  const program = given ?? findProgram(["helm"]) ?? (await unpackHelm(folder));
  const env = { PATH: process.env.PATH, HOME: folder.path };
  let files = 0;
  const helm: Helm["run"] = async (command, args, ...values) => {
    for (const some of values) {
      if (typeof some === "string" && some.startsWith("--set=")) {
        args = [...args, some];
        continue;
      }
      const file = typeof some === "string" ? some : join(folder.path, `values-${++files}.yaml`);
      if (file !== some) await writeFile(file, JSON.stringify(some));
      args = [...args, "--values", file];
    }
    try {
      return await run(program, [command, ...args], { env, maxBuffer: 16 * 1024 * 1024 });
    } catch (error) {
      throw new Error(`helm ${command}: ${(error as { stderr?: string }).stderr || error}`);
    }
  };
  return {
    render: async (...values) => {
      const { stdout } = await helm("template", ["petstore", chart, "--kube-version", "1.31.0"], ...values);
      return parseAllDocuments(stdout).flatMap((document) => (document.toJS() as Manifest | null) ?? []);
    },
    run: helm,
    lint: async (...values) => void (await helm("lint", [chart, "--strict"], ...values)),
    remove: () => folder.remove(),
  };
}

async function unpackHelm(folder: TemporaryFolder): Promise<string> {
  if (process.platform !== "linux" || process.arch !== "x64") {
    throw new Error("The tests of the chart need helm in PATH: npm brings it only for Linux on x64");
  }
  const archive = await readFile(createRequire(import.meta.url).resolve("@aws-cdk/asset-kubectl-v20/lib/layer.zip"));
  const name = "helm/helm";
  const path = join(folder.path, "helm");
  await writeFile(path, unzipSync(archive, { filter: (file) => file.name === name })[name]!);
  await chmod(path, 0o755);
  return path;
}
