/** Builds programs from their Go modules, and keeps them from one run to the next. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { testCache } from "./debian-sid.ts";
import { findProgram } from "./server-programs.ts";

const run = promisify(execFile);

export interface GoPrograms {
  /** Why they are not on this machine; undefined where they are, or where this run may build them. */
  readonly missing: string | undefined;
  /** Returns their folder, which is filled first where it is missing; that takes minutes. */
  folder(): Promise<string>;
}

/**
 * @param name of the folder, with all versions
 * @param command the npm script that builds them
 * @param fill builds the programs into a folder
 */
export async function goPrograms(
  name: string,
  command: string,
  fill: (folder: string) => Promise<void>,
): Promise<GoPrograms> {
  const folder = join(await testCache(), name);
  return {
    missing: whatIsMissing(folder, command),
    folder: async () => {
      if (existsSync(folder)) return folder;
      console.warn(`The tests need ${name}: building it into ${folder}.`);
      const unfinished = await mkdtemp(join(await testCache(), "building-"));
      try {
        await fill(unfinished);
        await rename(unfinished, folder);
      } finally {
        await rm(unfinished, { recursive: true, force: true });
      }
      return folder;
    },
  };
}

function whatIsMissing(folder: string, command: string): string | undefined {
  if (existsSync(folder)) return undefined;
  if (findProgram(["go"]) === undefined) return "without Go";
  return process.env.FAULTS === "long" ? undefined : `before \`npm run ${command}\` has built its programs`;
}

export interface ModulePrograms {
  /** Its path and its version, as in `k8s.io/kubernetes` and `v1.34.3`. */
  readonly module: string;
  readonly version: string;
  /** Paths of packages in the module. */
  readonly packages: readonly string[];
  /** Changes the module's go.mod. */
  readonly change?: (goMod: string) => string;
  /** Values of variables in the programs. */
  readonly named?: Readonly<Record<string, string>>;
}

/**
 * Builds programs of a module by its own go.mod, which `go install` refuses where that replaces or excludes modules.
 */
export async function buildPrograms(target: string, programs: ModulePrograms): Promise<void> {
  const { module, version, packages, change = (goMod) => goMod, named = {} } = programs;
  const { Dir } = await downloadModule(target, `${module}@${version}`);
  const place = join(target, "module");
  await mkdir(place);
  const text = (await readFile(join(Dir, "go.mod"), "utf8")).replace(`module ${module}`, "module petstore-tests");
  await writeFile(join(place, "go.mod"), `${change(text)}\nrequire ${module} ${version}\n`);
  await writeFile(join(place, "go.sum"), await readFile(join(Dir, "go.sum")));
  const link = ["-s", "-w", ...Object.entries(named).map(([name, value]) => `-X ${name}=${value}`)];
  const paths = packages.map((path) => `${module}/${path}`);
  await go(place, {}, "build", "-mod=mod", `-ldflags=${link.join(" ")}`, "-o", target, ...paths);
  await rm(place, { recursive: true });
}

/** @returns the folder of the module's files */
export async function downloadModule(cwd: string, module: string): Promise<{ Dir: string }> {
  return JSON.parse(await go(cwd, {}, "mod", "download", "-json", module));
}

/** Runs the command `go`, after whatever else wants this machine's processors. */
export async function go(cwd: string, env: NodeJS.ProcessEnv, ...args: string[]): Promise<string> {
  const options = { cwd, env: { ...process.env, ...env }, maxBuffer: 64 * 1024 * 1024 };
  return (await run("nice", ["go", ...args], options)).stdout;
}
