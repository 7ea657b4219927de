import { suiteStack } from "../support/cleanup.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { checkHistory } from "./history.ts";

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

  test("no read that began after an acknowledgement shows anything older", async () => {
    const verdict = await checkHistory(cluster, { key, pets, readers: 24, reads: isLong ? 100_000 : 4_000 });
    expect(verdict.violations).toEqual([]);
    expect(verdict.refused).toBe(0);
    expect(verdict.writes).toBeGreaterThan(100);
  }, 300_000);

  test("not while processes of both tiers are killed either", async () => {
    const targets = [...cluster.services, ...cluster.gateways];
    let turn = 0;
    const verdict = await checkHistory(cluster, {
      key,
      pets,
      readers: 24,
      reads: isLong ? 50_000 : 4_000,
      disturb: async () => await targets[turn++ % targets.length]!.crash(),
    });
    expect(verdict.violations).toEqual([]);
    expect(turn).toBeGreaterThan(1);
  }, 600_000);
});

test("the check of histories finds a gateway whose reads join the check that is under way", async () => {
  await using stack = new AsyncDisposableStack();
  const cluster = await startCluster(stack, { gateways: 3, pets, gatewayScript: "test/faults/broken-gateway.ts" });
  const key = cluster.system.keys.enterprise;
  const { violations } = await checkHistory(cluster, { key, pets, readers: 24, reads: 4_000 });
  expect(violations).not.toEqual([]);
}, 120_000);
