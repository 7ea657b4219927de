// Preloaded into a process: at SIGUSR2 it collects all garbage and writes what is left to the file MEMORY_REPORT.
import { writeFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;
process.on("SIGUSR2", () => {
  collect();
  collect();
  const { heapUsed, external } = process.memoryUsage();
  writeFileSync(process.env.MEMORY_REPORT!, `${heapUsed + external}\n`);
});
