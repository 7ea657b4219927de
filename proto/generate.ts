// Generates proto/gen, which is committed: the TypeScript code of the contract and the descriptors that reflection
// serves (npm run generate).
import { execFileSync } from "node:child_process";
import { join } from "node:path";

const proto = import.meta.dirname;

/** Generates the code and the descriptors. @param out folder that receives `gen` */
export function generate(out: string): void {
  buf("generate", "--output", out);
  buf("build", "--as-file-descriptor-set", "--output", join(out, "gen", "descriptors.binpb"));
}

/** Runs buf in the folder of the contract. @throws Error when it fails */
export function buf(...args: string[]): void {
  execFileSync("buf", args, { cwd: proto, stdio: ["ignore", "inherit", "inherit"] });
}

if (import.meta.main) generate(proto);
