/** Logs as many lines as its parent asks for; then it ends, or reports its memory and the lines that were lost. */
import { setImmediate } from "node:timers/promises";
import { Registry } from "prom-client";
import { createLogger } from "../../runtime/log.ts";
import { LogOutput } from "../../runtime/log-output.ts";

export interface LogOrder {
  readonly lines: number;
  /** Ends the process right after the last line, with this code. */
  readonly exitCode?: number;
}

export interface LogReport {
  readonly grownMiB: number;
  readonly lost: number;
}

const output = new LogOutput();
const log = createLogger("writer", "error", output);
const registry = new Registry();
output.expose(registry, "test");
const text = "x".repeat(200);

process.on("message", async ({ lines, exitCode }: LogOrder) => {
  const before = process.memoryUsage.rss();
  for (let i = 1; i <= lines; i++) {
    log.error({ text }, "line");
    if (i % 100 === 0 && i < lines) await setImmediate();
  }
  if (exitCode !== undefined) process.exit(exitCode);
  const grownMiB = (process.memoryUsage.rss() - before) / 1024 / 1024;
  const lost = Number((await registry.getSingleMetricAsString("test_log_lines_lost_total")).split(" ").at(-1));
  process.send!({ grownMiB, lost } satisfies LogReport);
});
process.send!("ready");
