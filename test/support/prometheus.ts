import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { startChild } from "./children.ts";
import { temporaryFolder } from "./cleanup.ts";
import { request } from "./http.ts";
import { freePort } from "./ports.ts";
import { findProgram, serverProgram } from "./server-programs.ts";

export const observability = resolve(import.meta.dirname, "../../deploy/observability");
export const rulesFile = join(observability, "prometheus/rules.yaml");

export interface Prometheus {
  /** Asks its HTTP API. @returns the data of the answer @throws Error with any answer other than 200 */
  ask<T>(path: string, parameters?: Record<string, string>): Promise<T>;
  stop(): Promise<void>;
}

/**
 * Starts a real Prometheus with the project's rules, which scrapes and evaluates every second. @param targets by job
 */
export async function startPrometheus(targets: Readonly<Record<string, readonly string[]>>): Promise<Prometheus> {
  const program = await serverProgram("prometheus");
  const folder = await temporaryFolder("prometheus");
  const config = {
    global: { scrape_interval: "1s", scrape_timeout: "1s", evaluation_interval: "1s" },
    rule_files: [rulesFile],
    scrape_configs: Object.entries(targets).map(([job_name, addresses]) => ({
      job_name,
      static_configs: [{ targets: addresses }],
    })),
  };
  await writeFile(join(folder.path, "prometheus.yaml"), JSON.stringify(config)); // YAML takes JSON
  const address = `127.0.0.1:${await freePort()}`;
  const args = ["--config.file=prometheus.yaml", "--storage.tsdb.path=data", `--web.listen-address=${address}`];
  const child = startChild(program, args, { name: "Prometheus", cwd: folder.path, env: process.env });
  const stop = async () => {
    await child.stop(10_000);
    await folder.remove();
  };
  try {
    await child.waitForLine((line) => line.includes("Server is ready to receive web requests") || undefined, 30_000);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    ask: async <T>(path: string, parameters: Record<string, string> = {}) => {
      const { status, text } = await request(address, { path: `/api/v1/${path}?${new URLSearchParams(parameters)}` });
      if (status !== 200) throw new Error(`${JSON.stringify(parameters)}: ${text}`);
      return JSON.parse(text).data as T;
    },
    stop,
  };
}

/** Runs promtool on a file of the project. @throws Error with its findings */
export async function promtool(command: readonly string[], file: string): Promise<void> {
  const program = (await serverProgram("prometheus")) && findProgram(["promtool"])!;
  const cwd = join(observability, "prometheus");
  await promisify(execFile)(program, [...command, file], { cwd }).catch(({ stdout, stderr }) => {
    throw new Error(stdout + stderr);
  });
}

export interface Target {
  readonly expr: string;
  readonly datasource: { readonly uid: string };
}

export interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly Target[];
}

export interface Dashboard {
  readonly file: string;
  readonly uid: string;
  readonly title: string;
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly type: string }[] };
}

/** Reads the project's dashboards. */
export function readDashboards(): Dashboard[] {
  const folder = join(observability, "grafana/dashboards");
  return readdirSync(folder).map((file) => ({ file, ...JSON.parse(readFileSync(join(folder, file), "utf8")) }));
}

/** Returns the names of the metrics in a PromQL query. */
export function metricsIn(promql: string): Set<string> {
  const bare = promql
    .replace(/"[^"]*"/g, "")
    .replace(/\{[^}]*\}|\[[^\]]*\]/g, " ")
    .replace(/\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)/g, " ");
  const names = bare.matchAll(/(?<![\w:.])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])/g);
  return new Set([...names].map(([name]) => name).filter((name) => !/^(?:and|or|unless|bool|offset)$/.test(name)));
}
