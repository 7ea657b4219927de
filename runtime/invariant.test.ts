import { InvariantError, invariant } from "./invariant.ts";
import { createRegistry } from "./metrics.ts";

test("an invariant that does not hold throws, and is counted under its text in the metrics", async () => {
  const registry = createRegistry();
  const shown = () => registry.getSingleMetricAsString("invariant_failures_total");
  invariant(true, "water is wet");
  expect(await shown()).not.toContain("wet");
  for (let i = 0; i < 2; i++) expect(() => invariant(false, "water is wet")).toThrow(InvariantError);
  expect(await shown()).toContain('invariant_failures_total{text="water is wet"} 2');
});
