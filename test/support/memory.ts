import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { type Stack, temporaryFolder } from "./stack.ts";
import { until } from "./until.ts";

/** Tells what the objects and Buffers of a process take. */
export interface MemoryProbe {
  /** The environment that the process has to be started with. */
  readonly env: Readonly<Record<string, string>>;
  /** Collects garbage of the process until hardly anything is freed any more. @returns bytes of what is left */
  usedBytes(pid: number): Promise<number>;
}

/** A process that frees less than this between two reports has closed what it had to close. */
const stillBytes = 50_000;

export async function memoryProbe(stack: Stack): Promise<MemoryProbe> {
  const folder = await temporaryFolder("memory");
  stack.defer(() => folder.remove());
  const file = join(folder.path, "report");
  const report = async (pid: number) => {
    await rm(file, { force: true });
    process.kill(pid, "SIGUSR2");
    let text = "";
    await until(async () => {
      text = await readFile(file, "utf8").catch(() => "");
      return text.endsWith("\n");
    });
    return Number(text);
  };
  const usedBytes = async (pid: number) => {
    let bytes = Number.POSITIVE_INFINITY;
    for (let next = await report(pid); next < bytes - stillBytes; next = await report(pid)) bytes = next;
    return bytes;
  };
  const script = join(import.meta.dirname, "memory-report.ts");
  return { env: { MEMORY_REPORT: file, NODE_OPTIONS: `--import=${script}` }, usedBytes };
}
