/**
 * Plants small faults in the sources, one at a time, and reports those that no test notices: `npm run mutants`.
 *
 * Each fault goes through the unit tests that can reach its file, then through the type checker, and at last through
 * the suites of its area, which start real processes. Results are kept, so a run that was stopped goes on where it was.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { appendFile, cp, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { startDatabaseServer } from "../support/database-server.ts";
import { temporaryFolder } from "../support/stack.ts";
import { count, createTool } from "../support/tools.ts";
import { type Mutation, mutationsOf, planted } from "./mutations.ts";

/**
 * The folders of the product, with the suites beyond the unit tests that should notice faults in them. A file belongs
 * to the first folder that it lies in.
 */
const areas: Readonly<Record<string, readonly string[]>> = {
  "gateway/limits/": ["contract/rate-limits", "contract/own-account", "integration/redis-windows"],
  "gateway/admission/": ["contract/authentication", "contract/rate-limits", "contract/temporary-bans"],
  "gateway/accounts/": [
    "contract/authentication",
    "contract/key-rotation",
    "integration/keys.test",
    "integration/key-use",
    "integration/peppers",
    "integration/look-up-flood",
  ],
  "gateway/inventory/": [
    "contract/update-inventory",
    "contract/bulk-updates",
    "contract/idempotency-key",
    "contract/list-inventory",
    "contract/list-changes",
    "contract/get-entry",
    "contract/wait-for-change",
    "contract/error-answers",
  ],
  "gateway/http/": ["contract/error-answers", "contract/bounds", "contract/overload", "contract/authentication"],
  "inventory-svc/stock/": [
    "integration/stock-store",
    "integration/adjustments",
    "integration/watch",
    "integration/database-migrations",
  ],
  "inventory-svc/rpc/": ["integration/inventory-service", "integration/adjustments", "integration/watch"],
  "gateway/passthrough/": ["contract/store-routes", "integration/pass-through"],
  "gateway/": ["contract/error-answers", "contract/openapi", "integration/gateway-life", "integration/observability"],
  "inventory-svc/": ["integration/mutual-tls", "integration/stock-cli", "integration/inventory-service-life"],
  "client/": [
    "contract/update-inventory",
    "contract/idempotency-key",
    "contract/list-inventory",
    "integration/client.test",
    "integration/shared-messages",
    "integration/late-write",
  ],
  "runtime/": [
    "contract/list-inventory",
    "contract/update-inventory",
    "integration/stock-store",
    "integration/database",
    "integration/old-primary",
    "integration/certificate-reload",
    "integration/operator-faults",
    "integration/log",
  ],
  "proto/": ["contract/list-inventory", "contract/update-inventory", "integration/client.test"],
  "rest-client/": ["integration/rest-client"],
};

const resultsPath = ".data/mutants.jsonl";
const unitTimeoutMs = 120_000;
const suitesTimeoutMs = 400_000;
const copies = 2;

type Verdict = "unit" | "suites" | "types" | "survived";

interface Mutant extends Mutation {
  readonly file: string;
  readonly source: string;
  /** Names the fault in this version of its file. */
  readonly key: string;
}

const tool = createTool("mutants", "Plants small faults in the sources, and reports those that no test notices.")
  .argument("[files...]", `files and folders; default: ${Object.keys(areas).join(", ")}`)
  .option("--sample <n>", "only so many faults, taken at random", count)
  .option("--seed <n>", "which ones are taken", count, 1)
  .option("--since <commit>", "only in lines that have changed since then")
  .parse();
const { sample, seed, since } = tool.opts<{ sample?: number; seed: number; since?: string }>();

const known = await readResults();
const mutants = sampleOf(await findMutants(), sample, seed);
const waiting = mutants.filter(({ key }) => !known.has(key));
console.log(`${mutants.length} faults, ${waiting.length} of them to be planted`);
if (waiting.length > 0) await plantAll(waiting);
report();

async function findMutants(): Promise<Mutant[]> {
  const tracked = (await output("git", ["ls-files", ...Object.keys(areas)])).split("\n");
  const sources = tracked.filter((file) => /(?<!\.test)\.ts$/.test(file) && !file.startsWith("proto/gen/"));
  const chosen = sources.filter((file) => tool.args.length === 0 || tool.args.some((path) => file.startsWith(path)));
  for (const path of tool.args) {
    if (!sources.some((file) => file.startsWith(path))) tool.error(`no source of the product is at ${path}`);
  }
  const found: Mutant[] = [];
  for (const file of chosen) {
    const source = await readFile(file, "utf8");
    const version = createHash("sha256").update(source).digest("hex").slice(0, 12);
    const changed = since === undefined ? undefined : await changedLines(since, file);
    for (const mutation of mutationsOf(source)) {
      if (changed && !changed.has(mutation.line)) continue;
      const { start, end, replacement } = mutation;
      found.push({ ...mutation, file, source, key: `${file} ${version} ${start} ${end} ${replacement}` });
    }
  }
  return found;
}

async function changedLines(since: string, file: string): Promise<Set<number>> {
  const lines = new Set<number>();
  for (const [, first, count] of (await output("git", ["diff", "-U0", since, "--", file])).matchAll(
    /^@@ \S+ \+(\d+)(?:,(\d+))? @@/gm,
  )) {
    for (let i = 0; i < Number(count ?? 1); i++) lines.add(Number(first) + i);
  }
  return lines;
}

/** The same ones for the same seed, in a random order. */
function sampleOf(all: readonly Mutant[], size: number | undefined, seed: number): Mutant[] {
  const rank = ({ key }: Mutant) => createHash("sha256").update(`${seed} ${key}`).digest("hex");
  return all
    .map((mutant) => [rank(mutant), mutant] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .slice(0, size)
    .map(([, mutant]) => mutant);
}

/** Plants the faults in copies of the project, which share a database server. */
async function plantAll(queue: Mutant[]): Promise<void> {
  await mkdir(dirname(resultsPath), { recursive: true });
  await using stack = new AsyncDisposableStack();
  const server = await startDatabaseServer();
  stack.defer(() => server.stop());
  const env = { ...process.env, TEST_MYSQL_URL: server.url(""), STOP_AT_FAILURE: "1" };
  let done = 0;
  const work = async () => {
    const folder = await temporaryFolder("mutants");
    stack.defer(() => folder.remove());
    await copyProject(folder.path);
    for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
      const verdict = await judge(folder.path, mutant, env);
      known.set(mutant.key, verdict);
      await appendFile(resultsPath, `${JSON.stringify({ key: mutant.key, verdict })}\n`);
      done += 1;
      console.log(`${done}: ${verdict.padEnd(8)} ${describe(mutant)}`);
    }
  };
  await Promise.all(Array.from({ length: copies }, work));
}

async function copyProject(path: string): Promise<void> {
  for (const file of (await output("git", ["ls-files"])).trim().split("\n")) {
    await cp(file, join(path, file), { recursive: true }).catch(() => {}); // one that was deleted meanwhile
  }
  await symlink(resolve("node_modules"), join(path, "node_modules"));
}

async function judge(folder: string, mutant: Mutant, env: NodeJS.ProcessEnv): Promise<Verdict> {
  const path = join(folder, mutant.file);
  const passes = (script: string, args: readonly string[], timeoutMs: number) =>
    run(process.execPath, ["--experimental-vm-modules", script, ...args], { cwd: folder, env, timeoutMs });
  const jest = (args: readonly string[], timeoutMs: number) =>
    passes("node_modules/jest/bin/jest.js", ["--bail", "--runInBand", "--passWithNoTests", ...args], timeoutMs);
  await writeFile(path, planted(mutant.source, mutant));
  try {
    if (!(await jest(["--selectProjects", "unit", "--findRelatedTests", path], unitTimeoutMs))) return "unit";
    const types = { cwd: folder, env, timeoutMs: unitTimeoutMs };
    if (!(await run("node_modules/.bin/tsc", ["-p", "tsconfig.json"], types))) return "types";
    const area = Object.keys(areas).find((name) => mutant.file.startsWith(name))!;
    const suites = areas[area]!.map((suite) => `test/${suite}`);
    // Jest takes all words after --selectProjects for projects.
    return (await jest([...suites, "--selectProjects", "system"], suitesTimeoutMs)) ? "survived" : "suites";
  } finally {
    await writeFile(path, mutant.source);
  }
}

function report(): void {
  const byArea = Map.groupBy(mutants, ({ file }) => Object.keys(areas).find((area) => file.startsWith(area))!);
  for (const [area, ofArea] of byArea) {
    const survived = ofArea.filter(({ key }) => known.get(key) === "survived").length;
    console.log(`${area.padEnd(24)} ${ofArea.length - survived} of ${ofArea.length} found`);
  }
  const survivors = mutants.filter(({ key }) => known.get(key) === "survived");
  console.log(`${mutants.length - survivors.length} of ${mutants.length} found by a test; not found:`);
  for (const mutant of survivors.sort((a, b) => (a.key < b.key ? -1 : 1))) console.log(`  ${describe(mutant)}`);
}

function describe({ file, line, source, start, end, replacement }: Mutant): string {
  const text = source.slice(start, end).replace(/\s+/g, " ");
  return `${file}:${line} ${text.length > 60 ? `${text.slice(0, 57)}…` : text} → ${replacement || "nothing"}`;
}

async function readResults(): Promise<Map<string, Verdict>> {
  const text = await readFile(resultsPath, "utf8").catch(() => "");
  const lines = text.split("\n").filter((line) => line !== "");
  return new Map(lines.map((line) => JSON.parse(line)).map(({ key, verdict }) => [key, verdict]));
}

interface RunOptions {
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  readonly timeoutMs: number;
}

/** Runs a program with all that it starts. @returns whether it succeeded in time */
async function run(program: string, args: readonly string[], { cwd, env, timeoutMs }: RunOptions): Promise<boolean> {
  const child = spawn(program, args, { cwd, env, stdio: "ignore", detached: true });
  const timer = setTimeout(() => process.kill(-child.pid!, "SIGKILL"), timeoutMs);
  const [code] = await once(child, "exit");
  clearTimeout(timer);
  return code === 0;
}

async function output(program: string, args: readonly string[]): Promise<string> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  return (await child.stdout.toArray()).join("");
}
