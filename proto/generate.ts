// Generates what is committed below proto/gen: TypeScript for both tiers, and the descriptors that reflection serves.
// `node proto/generate.ts [--to DIR]`
import { execFileSync } from "node:child_process";
import { join } from "node:path";

const proto = import.meta.dirname;

/** @param out folder that receives `gen` */
export function generate(out: string): void {
  buf("generate", "--output", out);
  buf("build", "--as-file-descriptor-set", "--output", join(out, "gen", "descriptors.binpb"));
}

/** Runs buf in the folder of the contract. */
export function buf(...args: string[]): void {
  execFileSync("buf", args, { cwd: proto, stdio: ["ignore", "inherit", "inherit"] });
}

if (import.meta.main) generate(proto);
