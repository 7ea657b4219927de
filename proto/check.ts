// Checks the contract's style, that it is compatible with the baseline, and that the generated code is up to date.
// `node proto/check.ts --accept` replaces the baseline: use it for a change that is meant to break callers (a new major
// version).
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buf, generate } from "./generate.ts";

if (process.argv.includes("--accept")) {
  buf("build", "--output", "baseline.binpb");
} else {
  buf("lint");
  buf("breaking", "--against", "baseline.binpb");
  const fresh = mkdtempSync(join(tmpdir(), "petstore-proto-"));
  try {
    generate(fresh);
    execFileSync("diff", ["-r", join(fresh, "gen"), join(import.meta.dirname, "gen")], { stdio: "inherit" });
  } catch {
    console.error("proto/gen is out of date, or could not be made again: run npm run generate");
    process.exitCode = 1;
  } finally {
    rmSync(fresh, { recursive: true });
  }
}
