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

const folder = mkdtempSync(join(tmpdir(), "planted-"));
for (const path of copied) cpSync(path, join(folder, path), { recursive: true });
symlinkSync(resolve("node_modules"), join(folder, "node_modules"));
const missed: string[] = [];
try {
  for (const fault of plantedFaults) {
    if (!`${fault.what} ${fault.file}`.includes(only)) continue;
    const path = join(folder, fault.file);
    const source = readFileSync(path, "utf8");
    const parts = source.split(fault.find);
    if (parts.length !== 2) throw new Error(`${fault.file} has the text ${parts.length - 1} times: ${fault.find}`);
    writeFileSync(path, parts.join(fault.replace));
    const startedMs = performance.now();
    const { isFound, output } = await simulateCopy();
    writeFileSync(path, source);
    const seconds = ((performance.now() - startedMs) / 1_000).toFixed(0);
    const seen =
      output
        .split("\n")
        .find((line) => line.startsWith("  "))
        ?.trim() ?? output.trim().slice(0, 200);
    console.log(`${isFound ? "found" : "NOT FOUND"} in ${seconds} s: ${fault.what}\n    ${seen.slice(0, 200)}`);
    if (!isFound) missed.push(fault.what);
  }
} finally {
  rmSync(folder, { recursive: true });
}
console.log(missed.length === 0 ? "all were found" : `${missed.length} were not found`);
process.exitCode = missed.length === 0 ? 0 : 1;

async function simulateCopy(): Promise<{ readonly isFound: boolean; readonly output: string }> {
  const args = ["test/simulation/simulate.ts", "--until-failure", "--seeds", String(seeds)];
  const child = spawn(process.execPath, args, { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  const output = (await child.stdout.toArray()).join("");
  const [code] = child.exitCode === null ? await once(child, "exit") : [child.exitCode];
  return { isFound: code === 1 && /^seed \d+:$/m.test(output), output };
}
