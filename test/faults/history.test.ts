import { suiteStack } from "../support/cleanup.ts";
import { checkAdjustments } from "./adjustments.ts";
import { type Cluster, type ClusterOptions, startCluster } from "./cluster.ts";
import { checkHistory, type ReadKind } from "./history.ts";

/** `npm run test:faults` runs the long version. */
const isLong = process.env.FAULTS === "long";
const pets = 8;

describe("three gateways and two inventory services on one database", () => {
  const stack = suiteStack();
  let cluster: Cluster;
  let key: string;

  beforeAll(async () => {
    cluster = await startCluster(stack, { gateways: 3, pets });
    key = cluster.system.keys.enterprise;
  });

  test("show in no read anything older than what was acknowledged before it began", async () => {
    const verdict = await checkHistory(cluster, { key, pets, readers: 24, reads: isLong ? 100_000 : 4_000 });
    expect(verdict.violations).toEqual([]);
    expect(verdict.refusals).toEqual({});
    expect(verdict.writes).toBeGreaterThan(100);
  }, 300_000);

  test("lose no acknowledged update and let no older one overtake it while either tier or the database is killed", async () => {
    const database = databaseOf(cluster);
    const targets = [...cluster.services, database, ...cluster.gateways];
    // The long run kills each kind two hundred times.
    const kills = isLong
      ? [...twoHundredOf(cluster.services), ...twoHundredOf([database]), ...twoHundredOf(cluster.gateways)]
      : targets;
    const disturbances = kills.map((target) => () => target.crash());
    const verdict = await checkHistory(cluster, { key, pets, readers: 24, reads: 4_000, disturbances });
    if (isLong) console.info(verdict);
    expect(verdict.violations).toEqual([]);
    // The deadline of the cluster, 2 s, and the delay that two busy cores add.
    expect(verdict.slowestMs).toBeLessThan(4_000);
  }, 3_600_000);

  test("apply an adjustment once that is retried until it is acknowledged while services and database are killed", async () => {
    const database = databaseOf(cluster);
    // The long run kills each kind two hundred times, in turns.
    const kills = isLong
      ? twoHundredOf(cluster.services).flatMap((service) => [service, database])
      : [...cluster.services, database];
    const disturbances = kills.map((target) => () => target.crash());
    const petIds = [101n, 102n, 103n];
    const verdict = await checkAdjustments(cluster, { petIds, callers: 24, adjustments: 2_000, disturbances });
    if (isLong) console.info(verdict);
    expect(verdict).toMatchObject({ astray: 0, differences: [0n, 0n, 0n] });
    expect(verdict.failed).toBeGreaterThan(0); // the kills had an effect
  }, 3_600_000);
});

function databaseOf({ database }: Cluster) {
  return {
    crash: async () => {
      await database.kill("SIGKILL");
      await database.restart();
    },
  };
}

/** Two hundred targets, each in its turn. */
function twoHundredOf<T>(targets: readonly T[]): T[] {
  return Array.from({ length: 200 }, (_, i) => targets[i % targets.length]!);
}

const brokenGateway = { gatewayScript: "test/faults/broken-gateway.ts" };
test.each<[string, readonly ReadKind[] | undefined, Partial<ClusterOptions>]>([
  ["reads of the list join the check that is under way", ["list"], brokenGateway],
  ["reads of one entry join the check that is under way", ["entry"], brokenGateway],
  ["changes leave one revision out", ["changes"], { gatewayScript: "test/faults/forgetful-gateway.ts" }],
  [
    "services answer questions from the read of the counter that is under way",
    undefined,
    { serviceScript: "test/faults/broken-service.ts" },
  ],
])(
  "the check of histories finds it when %s",
  async (_what, kinds, broken) => {
    await using stack = new AsyncDisposableStack();
    const cluster = await startCluster(stack, { gateways: 3, pets, ...broken });
    const key = cluster.system.keys.enterprise;
    const { violations } = await checkHistory(cluster, { key, pets, readers: 24, kinds, reads: 20_000 }); // ends at the first violation
    expect(violations).not.toEqual([]);
  },
  120_000,
);
