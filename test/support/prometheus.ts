import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { startChild } from "./children.ts";
import { request } from "./http.ts";
import { freePort } from "./ports.ts";
import { findProgram, serverProgram } from "./server-programs.ts";
import { temporaryFolder } from "./stack.ts";

const observability = resolve(import.meta.dirname, "../../deploy/observability");
export const rulesFile = resolve(observability, "../chart/rules.yaml");

/** Addresses to scrape, by job. */
export type Targets = Readonly<Record<"gateway" | "inventory-svc", readonly string[]>>;

export interface PrometheusOptions {
  /** Default: the project's. */
  readonly rules?: string;
  /** How often it scrapes; default 1,000. */
  readonly scrapeMs?: number;
  /** How often it evaluates the rules; default 1,000. */
  readonly evaluateMs?: number;
}

export interface Prometheus {
  /** Asks its HTTP API. @returns the data of the answer @throws Error with any answer other than 200 */
  ask<T>(path: string, parameters?: Record<string, string>): Promise<T>;
  /** Whether a query has a result now. */
  shows(query: string): Promise<boolean>;
  /** Scrapes other targets from now on. The instances of a job are `gateway-1`, `gateway-2`, and so on. */
  watch(targets: Targets): Promise<void>;
  stop(): Promise<void>;
}

/** Starts a real Prometheus. */
export async function startPrometheus(targets: Targets, options: PrometheusOptions = {}): Promise<Prometheus> {
  const { rules = rulesFile, scrapeMs = 1_000, evaluateMs = 1_000 } = options;
  const program = await serverProgram("prometheus");
  const folder = await temporaryFolder("prometheus");
  const scrape = `${scrapeMs}ms`;
  const config = {
    global: { scrape_interval: scrape, scrape_timeout: scrape, evaluation_interval: `${evaluateMs}ms` },
    rule_files: [rules],
    scrape_configs: Object.keys(targets).map((job_name) => ({
      job_name,
      file_sd_configs: [{ files: [`${job_name}.json`] }], // it sees at once when the file changes
    })),
  };
  await writeFile(join(folder.path, "prometheus.yaml"), JSON.stringify(config)); // YAML takes JSON
  const watch = async (watched: Targets) => {
    for (const [job, addresses] of Object.entries(watched)) {
      const file = join(folder.path, `${job}.json`);
      const named = addresses.map((each, i) => ({ targets: [each], labels: { instance: `${job}-${i + 1}` } }));
      await writeFile(`${file}.new`, JSON.stringify(named));
      await rename(`${file}.new`, file);
    }
  };
  await watch(targets);
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
  const ask = async <T>(path: string, parameters: Record<string, string> = {}) => {
    const { status, text } = await request(address, { path: `/api/v1/${path}?${new URLSearchParams(parameters)}` });
    if (status !== 200) throw new Error(`${JSON.stringify(parameters)}: ${text}`);
    return JSON.parse(text).data as T;
  };
  const shows = async (query: string) => (await ask<{ result: unknown[] }>("query", { query })).result.length > 0;
  return { ask, shows, watch, stop };
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
  /** The name of each series, with its labels as in `{{route}}`. */
  readonly legendFormat?: string;
  readonly datasource: { readonly uid: string };
}

export interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  /** On a grid of 24 columns. */
  readonly gridPos: Readonly<Record<"x" | "y" | "w" | "h", number>>;
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly Target[];
  readonly fieldConfig?: {
    readonly defaults: {
      readonly unit?: string;
      readonly min?: number;
      readonly thresholds?: { readonly steps: readonly { readonly color: string; readonly value: number | null }[] };
      readonly custom?: {
        readonly fillOpacity?: number;
        readonly stacking?: { readonly mode: string };
        readonly thresholdsStyle?: { readonly mode: string };
      };
    };
  };
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
