import { startTiers } from "../faults/cluster.ts";
import { suiteStack } from "../support/stack.ts";
import { startSemiSynchronousPair } from "./semi-synchronous.ts";
import { checkThrough, inTurns, writerFaults } from "./writer-faults.ts";
import { startWriterSwitch } from "./writer-switch.ts";

/** `npm run test:cluster` runs the long version. */
const isLong = process.env.FAULTS === "long";
const pets = 8;

describe("a semi-synchronous pair", () => {
  const stack = suiteStack();

  test("both tiers lose no update and show nothing older while the source is switched and killed", async () => {
    const pair = await startSemiSynchronousPair(stack);
    const writerSwitch = await startWriterSwitch(stack, pair);
    const { serverUrl } = writerSwitch;
    const { planned, killed } = writerFaults(pair, writerSwitch, pair.switchTo);
    const tiers = await startTiers(stack, [serverUrl, serverUrl], { gateways: 2, pets });
    const run = isLong ? inTurns([40, planned], [20, killed]) : [planned, killed];
    const verdict = await checkThrough(run, tiers, pets);
    expect(verdict.violations).toEqual([]);
    expect(Math.max(...verdict.effects.map(({ gapMs }) => gapMs))).toBeGreaterThan(100); // the faults had an effect
  }, 1_800_000);
});
