import type { Knex } from "knex";
import { Counter, collectDefaultMetrics, Gauge, type Histogram, Registry } from "prom-client";
import { poolUse } from "./database/open.ts";

type Labels = Readonly<Record<string, string | number>>;

export interface MetricOptions {
  /** Of the metric, with its unit: `gateway_check_duration_seconds`. */
  readonly name: string;
  readonly help: string;
  readonly registry: Registry;
  readonly labelNames?: readonly string[];
}

/** A registry with what prom-client tells of any process: CPU, memory, event loop, garbage collection. */
export function createRegistry(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return registry;
}

/** One value, or one for each set of labels. */
export type Reading = number | Iterable<readonly [labels: Labels, value: number]>;

/** A gauge that is read when it is scraped. */
export function gauge({ name, help, registry, labelNames = [] }: MetricOptions, read: () => Reading): void {
  new Gauge({
    name,
    help,
    labelNames,
    registers: [registry],
    collect() {
      for (const [labels, value] of entriesOf(read())) this.set(labels, value);
    },
  });
}

/** A counter whose owner keeps plain numbers, which are read when it is scraped. */
export function counter({ name, help, registry, labelNames = [] }: MetricOptions, read: () => Reading): void {
  new Counter({
    name,
    help,
    labelNames,
    registers: [registry],
    collect() {
      this.reset();
      for (const [labels, value] of entriesOf(read())) this.inc(labels, value);
    },
  });
}

function entriesOf(reading: Reading): Iterable<readonly [Labels, number]> {
  return typeof reading === "number" ? [[{}, reading]] : reading;
}

/** The counts of one set of labels. */
export class Series {
  readonly labels: Labels;
  readonly #bounds: readonly number[];
  /** Of each bucket, of what is above the last one, and the sum of all values. */
  readonly #counts: Float64Array;

  constructor(labels: Labels, bounds: readonly number[]) {
    this.labels = labels;
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 2);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > bounds[bucket]!) bucket++;
    this.#counts[bucket]! += 1;
    this.#counts[bounds.length + 1]! += value;
  }

  /** As Prometheus has them: each bucket holds those below it too. */
  *values(name: string) {
    let count = 0;
    for (const [i, bound] of [...this.#bounds, "+Inf"].entries()) {
      count += this.#counts[i]!;
      yield { metricName: `${name}_bucket`, labels: { ...this.labels, le: bound }, value: count };
    }
    yield { metricName: `${name}_sum`, labels: this.labels, value: this.#counts.at(-1)! };
    yield { metricName: `${name}_count`, labels: this.labels, value: count };
  }
}

/**
 * A histogram for what happens with every request. One of prom-client checks, sorts and joins the labels at each
 * observation, which takes 30 times as long; here whoever observes keeps the series of its labels.
 */
export class Distribution {
  readonly #bounds: readonly number[];
  readonly #series: Series[] = [];

  /** @param bounds upper ones of the buckets, ascending, in the unit of the name */
  constructor({ name, help, registry }: Omit<MetricOptions, "labelNames">, bounds: readonly number[]) {
    this.#bounds = bounds;
    const metric = {
      name,
      get: async () => ({
        name,
        help,
        type: "histogram",
        values: this.#series.flatMap((series) => [...series.values(name)]),
      }),
    };
    registry.registerMetric(metric as unknown as Histogram); // a registry asks a metric for no more than this
  }

  /** To be called once for each set of labels; they come from closed sets, so there are only so many. */
  series(labels: Labels = {}): Series {
    const series = new Series(labels, this.#bounds);
    this.#series.push(series);
    return series;
  }
}

/** The use of a database's connections. @param tier begins the names: `gateway`, `inventory` */
export function exposePool(registry: Registry, tier: string, db: Knex): void {
  const connections = { name: `${tier}_database_connections`, help: "Connections to the database", registry };
  gauge({ ...connections, labelNames: ["state"] }, () => {
    const { used, free } = poolUse(db);
    return [
      [{ state: "used" }, used],
      [{ state: "free" }, free],
    ];
  });
  const max = { name: `${tier}_database_connections_max`, help: "Connections to the database at the most", registry };
  gauge(max, () => poolUse(db).max);
  const waiting = {
    name: `${tier}_database_waiting`,
    help: "Callers that wait for a connection to the database",
    registry,
  };
  gauge(waiting, () => poolUse(db).waiting);
}

/** Bounds in seconds for what takes from less than a millisecond to some seconds. */
export const durationBounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10] as const;
