import { Registry } from "prom-client";
import { counter, Distribution, gauge } from "./metrics.ts";

/** Reads the lines of a scrape, without comments. */
async function scrape(registry: Registry): Promise<string[]> {
  return (await registry.metrics()).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
}

describe("distributions", () => {
  test("a distribution is a histogram whose buckets count values up to and including their bounds", async () => {
    const registry = new Registry();
    const waits = new Distribution({ name: "wait_seconds", help: "Waits", registry }, [0.1, 1]);
    const [here, there] = [waits.series({ at: "here" }), waits.series({ at: "there" })];
    for (const seconds of [0.05, 0.1, 0.5, 2, 4]) here.observe(seconds);
    there.observe(0);
    expect(await registry.metrics()).toContain("# TYPE wait_seconds histogram");
    expect(await scrape(registry)).toEqual([
      'wait_seconds_bucket{at="here",le="0.1"} 2',
      'wait_seconds_bucket{at="here",le="1"} 3',
      'wait_seconds_bucket{at="here",le="+Inf"} 5',
      'wait_seconds_sum{at="here"} 6.65',
      'wait_seconds_count{at="here"} 5',
      'wait_seconds_bucket{at="there",le="0.1"} 1',
      'wait_seconds_bucket{at="there",le="1"} 1',
      'wait_seconds_bucket{at="there",le="+Inf"} 1',
      'wait_seconds_sum{at="there"} 0',
      'wait_seconds_count{at="there"} 1',
    ]);
  });
});

describe("metrics that are read at a scrape", () => {
  test("a metric that is read at a scrape has its current value, once", async () => {
    const registry = new Registry();
    const state = { done: 3, waiting: 2 };
    counter({ name: "done_total", help: "Done", registry }, () => state.done);
    gauge({ name: "waiting", help: "Waiting", registry, labelNames: ["at"] }, () => [[{ at: "here" }, state.waiting]]);
    expect(await scrape(registry)).toEqual(["done_total 3", 'waiting{at="here"} 2']);
    Object.assign(state, { done: 5, waiting: 0 });
    expect(await scrape(registry)).toEqual(["done_total 5", 'waiting{at="here"} 0']);
  });
});
