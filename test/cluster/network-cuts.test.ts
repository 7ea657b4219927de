import { startTiers } from "../faults/cluster.ts";
import { startGalera } from "./galera.ts";
import { startGroupReplication } from "./group-replication.ts";
import { startNetwork, whyNoNetwork } from "./network.ts";
import { checkThrough, inTurns, writerCuts } from "./writer-faults.ts";
import { startWriterSwitch } from "./writer-switch.ts";

const pets = 8;
/** Why these tests do not run here. They belong to the long version, `npm run test:cluster`. */
const obstacle = process.env.FAULTS === "long" ? await whyNoNetwork() : "only npm run test:cluster cuts networks";
if (obstacle !== undefined) console.info(`No cuts: ${obstacle}`);

(obstacle === undefined ? test : test.skip).each([
  ["Group Replication", startGroupReplication],
  ["Galera", startGalera],
])(
  "both tiers lose no update and show nothing older while the writer of %s is cut off",
  async (_what, start) => {
    await using stack = new AsyncDisposableStack();
    const network = await startNetwork(stack, 3);
    const cluster = await start(stack, { hosts: network.hosts });
    const writerSwitch = await startWriterSwitch(stack, cluster);
    const { serverUrl } = writerSwitch;
    const tiers = await startTiers(stack, [serverUrl, serverUrl], { gateways: 2, pets });
    const { fromOthers, fromAll } = writerCuts(cluster, writerSwitch, network);
    const verdict = await checkThrough(inTurns([5, fromOthers], [5, fromAll]), tiers, pets);
    expect(verdict.violations).toEqual([]);
    expect(Math.min(...verdict.effects.map(({ gapMs }) => gapMs))).toBeGreaterThan(500); // each cut had an effect
  },
  1_800_000,
);
