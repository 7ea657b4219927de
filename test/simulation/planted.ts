/**
 * Plants faults in a copy of the sources, one at a time, and reports which of them the simulation does not find:
 * `npm run simulate:planted`.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { count, createTool } from "../support/tools.ts";
import { plantedFaults } from "./broken-promises.ts";

const copied = [
  "client",
  "gateway",
  "inventory-svc",
  "proto",
  "runtime",
  "test/simulation",
  "test/support",
  "package.json",
];

const tool = createTool(
  "simulate:planted",
  "Plants faults in a copy of the sources and simulates until they are found.",
)
  .option("--only <text>", "faults whose name or file has this text", "")
  .option("--seeds <count>", "seeds until a fault counts as not found", count, 2_000);
tool.parse();
const { only, seeds } = tool.opts<{ only: string; seeds: number }>();

const chosen = plantedFaults.filter(({ what, file }) => `${what} ${file}`.includes(only));
const folder = mkdtempSync(join(tmpdir(), "planted-"));
const ended = new AbortController();
process.once("exit", () => {
  ended.abort();
  rmSync(folder, { recursive: true });
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));
for (const path of copied) cpSync(path, join(folder, path), { recursive: true });
symlinkSync(resolve("node_modules"), join(folder, "node_modules"));
const missed: string[] = [];
for (const [i, { what, file, find, replace }] of chosen.entries()) {
  console.log(`${i + 1} of ${chosen.length}: ${what}`);
  const path = join(folder, file);
  const source = readFileSync(path, "utf8");
  const parts = source.split(find);
  if (parts.length !== 2) throw new Error(`${file} has the text ${parts.length - 1} times: ${find}`);
  writeFileSync(path, parts.join(replace));
  const startedMs = performance.now();
  const { foundBy, seen } = await simulateCopy();
  writeFileSync(path, source);
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(0);
  console.log(`    ${foundBy ? `found by seed ${foundBy}` : "NOT FOUND"} in ${seconds} s: ${seen}`);
  if (!foundBy) missed.push(what);
}
console.log(missed.length === 0 ? "all were found" : `${missed.length} were not found: ${missed.join("; ")}`);
process.exitCode = missed.length === 0 ? 0 : 1;

/** Runs one seed after the other until one fails. @returns that seed, and what the judge says first */
async function simulateCopy(): Promise<{ readonly foundBy: string | undefined; readonly seen: string }> {
  const args = ["test/simulation/simulate.ts", "--until-failure", "--seeds", String(seeds)];
  const { signal } = ended;
  const child = spawn(process.execPath, args, { cwd: folder, stdio: ["ignore", "pipe", "inherit"], signal });
  const output = (await child.stdout.toArray()).join("").trim();
  if (child.exitCode === null) await once(child, "exit");
  const [, foundBy, first] = /^seed (\d+):\n(.*)$/m.exec(output) ?? [];
  return { foundBy, seen: (first ?? output).trim().slice(0, 200) };
}
