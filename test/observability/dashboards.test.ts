import { readDashboards } from "../support/prometheus.ts";
import { suiteStack } from "../support/stack.ts";
import { type Run, runWithFaults } from "./run.ts";

const panels = readDashboards().flatMap(({ file, panels }) => panels.map((panel) => ({ file, ...panel })));

// `npm run test:containers` runs it.
(process.env.FAULTS === "long" ? describe : describe.skip)("a run with every fault", () => {
  const stack = suiteStack();
  let run: Run;

  beforeAll(async () => {
    run = await runWithFaults(stack);
  }, 1_800_000);

  test.each(panels.filter(({ type }) => type !== "row"))(
    "gives data to each query of $title ($id) in $file, not only zeros",
    async ({ type, targets = [] }) => {
      const found = await Promise.all(targets.map((target) => run.values(target)));
      expect(targets.filter((_target, i) => !found[i]!.some(({ at }) => at.size > 1))).toEqual([]);
      const values = found.flat().flatMap(({ at }) => [...at.values()]);
      if (type === "timeseries") expect(values.filter((value) => value !== 0)).not.toEqual([]);
    },
  );

  test("fails none of the rules", async () => {
    type Rules = { groups: { rules: { name: string; health: string; lastError?: string }[] }[] };
    const { groups } = await run.prometheus.ask<Rules>("rules");
    const rules = groups.flatMap((group) => group.rules);
    expect(rules.filter(({ health, lastError }) => health !== "ok" || lastError)).toEqual([]);
  });
});
