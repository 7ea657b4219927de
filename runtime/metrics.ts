/** Metrics for Prometheus that cost little on the path of a request. */
import { Counter, collectDefaultMetrics, Gauge, type Histogram, Registry } from "prom-client";
import { invariantFailures } from "./invariant.ts";

type Labels = Readonly<Record<string, string | number>>;

export interface MetricOptions {
  /** The name of the metric, with its unit: `gateway_check_duration_seconds`. */
  readonly name: string;
  readonly help: string;
  readonly registry: Registry;
  readonly labelNames?: readonly string[];
}

/**
 * Makes a registry with the metrics of any process: prom-client's of CPU, memory, event loop and garbage collection,
 * and the failures of invariants.
 */
export function createRegistry(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const help = "How often something that must always hold did not hold; the request or the answer was refused";
  counter({ name: "invariant_failures_total", help, registry, labelNames: ["text"] }, () => {
    const failures = invariantFailures();
    if (failures.size === 0) return 0; // the series is there before anything fails
    return Array.from(failures, ([text, count]) => [{ text }, count] as const);
  });
  return registry;
}

/** One value, or one for each set of labels. */
export type Reading = number | Iterable<readonly [labels: Labels, value: number]>;

/** Adds a gauge that is read when it is scraped. */
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

/** Adds a counter whose owner keeps plain numbers, which are read when it is scraped. */
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
  /** One count for each bucket, one for the values above the last bucket, then the sum of all values. */
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

  /** In Prometheus' form, where each bucket includes the smaller ones. */
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
 * observation; here the caller keeps the series of its labels, and an observation adds two numbers.
 */
export class Distribution {
  readonly #bounds: readonly number[];
  readonly #series: Series[] = [];

  /** @param bounds upper bounds of the buckets, ascending, in the unit of the name */
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
    registry.registerMetric(metric as unknown as Histogram); // a registry uses nothing else of a metric
  }

  /** Makes the series of one set of labels. Call it once for each set; label values come from closed sets. */
  series(labels: Labels = {}): Series {
    const series = new Series(labels, this.#bounds);
    this.#series.push(series);
    return series;
  }
}

/** Bounds in seconds for durations from less than a millisecond to some seconds. */
export const durationBoundsSeconds = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;
