// Runs wrk, and reads the CPU time and the memory of processes.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { serverProgram } from "../support/server-programs.ts";

const run = promisify(execFile);

export interface Load {
  readonly address: string;
  readonly connections: number;
  readonly seconds: number;
  readonly headers: Readonly<Record<string, string>>;
  /** A file for wrk that makes the requests; without it they are GET /v1/inventory. */
  readonly script?: string;
  /** Arguments of the script. */
  readonly args?: readonly string[];
}

/** The result of one run of a load. CPU is the user and system time of a process, in ms for each request. */
export interface Figures {
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Responses other than 2xx and 3xx, and requests without a response. */
  readonly errors: number;
  readonly cpuMs: Readonly<Record<string, number>>;
}

const msPerTick = 10; // CLK_TCK is 100 on every Linux that Node runs on

/** Returns the user and system time of a process, in ms. */
export function cpuMsOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * msPerTick;
}

/** Returns the peak resident memory of a process, in MiB. */
export function peakMemoryMiB(pid: number): number {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}

/** Returns the resident memory of a process, in MiB. */
export function memoryMiB(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}

/** Runs a load and measures the CPU time that the processes spend on it. */
export async function measure(load: Load, processes: Readonly<Record<string, number>>): Promise<Figures> {
  const wrk = await serverProgram("wrk");
  const script = load.script ?? join(import.meta.dirname, "get.lua");
  const args = ["-t1", `-c${load.connections}`, `-d${load.seconds}s`, "--latency", "--timeout", "10s", "-s", script];
  for (const [name, value] of Object.entries(load.headers)) args.push("-H", `${name}: ${value}`);
  const names = Object.keys(processes);
  const before = names.map((name) => cpuMsOf(processes[name]!));
  const { stdout } = await run(wrk, [...args, `http://${load.address}`, "--", ...(load.args ?? [])]);
  const after = names.map((name) => cpuMsOf(processes[name]!));
  const { requests, durationUs, p50Us, p99Us, errors } = JSON.parse(stdout.slice(stdout.lastIndexOf("\n{")));
  return {
    requestsPerSecond: requests / (durationUs / 1e6),
    p50Ms: p50Us / 1_000,
    p99Ms: p99Us / 1_000,
    errors,
    cpuMs: Object.fromEntries(names.map((name, i) => [name, (after[i]! - before[i]!) / requests])),
  };
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Returns the medians of several runs of one load. */
export function medians(runs: readonly Figures[]): Figures {
  const of = (read: (figures: Figures) => number) => median(runs.map(read));
  return {
    requestsPerSecond: of((f) => f.requestsPerSecond),
    p50Ms: of((f) => f.p50Ms),
    p99Ms: of((f) => f.p99Ms),
    errors: runs.reduce((sum, f) => sum + f.errors, 0),
    cpuMs: Object.fromEntries(Object.keys(runs[0]!.cpuMs).map((name) => [name, of((f) => f.cpuMs[name]!)])),
  };
}

/** Returns the CPU time of all processes together, in ms for each request. */
export function totalCpuMs({ cpuMs }: Figures): number {
  return Object.values(cpuMs).reduce((sum, ms) => sum + ms, 0);
}
