import { setTimeout as delay } from "node:timers/promises";
import type { Prometheus, Target } from "../support/prometheus.ts";
import { faults } from "./planted-faults.ts";
import { startWatchedSystem } from "./watched-system.ts";

/** What a query gave over a run. */
interface Values {
  readonly labels: Readonly<Record<string, string>>;
  /** By Unix seconds, `stepSeconds` apart; not where there was none. */
  readonly at: ReadonlyMap<number, number>;
}

/** A run of some minutes of the real system, with the project's rules as they are. */
export interface Run {
  readonly prometheus: Prometheus;
  /** Unix seconds. */
  readonly from: number;
  readonly to: number;
  /** Asks a panel's query for the whole run. */
  values(target: Target): Promise<Values[]>;
}

export const stepSeconds = 2;
const calmMs = 30_000;
const faultMs = 12_000;
const betweenMs = 5_000;

/** Runs the system with every fault in it, one after the other. All is stopped with the stack. */
export async function runWithFaults(stack: AsyncDisposableStack): Promise<Run> {
  const watched = await startWatchedSystem(stack);
  const { prometheus } = watched;
  const from = Math.ceil(Date.now() / 1_000);
  await delay(calmMs);
  for (const begin of Object.values(faults)) {
    const end = await begin(watched);
    await delay(faultMs);
    await end();
    await delay(betweenMs);
  }
  await delay(calmMs);
  const to = Math.floor(Date.now() / 1_000);
  const values = async ({ expr }: Target) => {
    // Grafana's interval is four scrapes, or a pixel where that is longer.
    const query = expr.replaceAll("$__rate_interval", "8s").replace(/\$(?:instance|namespace)\b/g, ".*");
    const range = { start: String(from), end: String(to), step: String(stepSeconds) };
    type Series = { metric: Record<string, string>; values: [at: number, value: string][] };
    const { result } = await prometheus.ask<{ result: Series[] }>("query_range", { query, ...range });
    return result.map(({ metric, values }) => {
      const finite = values
        .map(([at, value]) => [at, Number(value)] as const)
        .filter(([, value]) => Number.isFinite(value));
      return { labels: metric, at: new Map(finite) };
    });
  };
  return { prometheus, from, to, values };
}
