import type { Restartable } from "../support/restartable.ts";
import { suiteStack } from "../support/stack.ts";
import { checkAdjustments } from "./adjustments.ts";
import { type Cluster, type ClusterOptions, startCluster } from "./cluster.ts";
import { checkHistory, type ReadKind, type UpdateWay } from "./history.ts";
import { checkTransfers } from "./transfers.ts";

/** `npm run test:faults` runs the long version. */
const isLong = process.env.FAULTS === "long";
const pets = 8;
/** Default of INVENTORY_TIMEOUT_MS: a request waits as long for a database that is killed again and again. */
const deadlineMs = 5_000;
/** Callers of the long run leave time for the processes that are killed and start again, hundreds of times. */
const pauseMs = isLong ? 25 : undefined;

describe("three gateways and two inventory services on one database", () => {
  const stack = suiteStack();
  let cluster: Cluster;
  let key: string;

  beforeAll(async () => {
    cluster = await startCluster(stack, { gateways: 3, pets });
    key = cluster.system.keys.enterprise;
  });

  test("replicas of both tiers show in no read anything older than what was acknowledged before it", async () => {
    const verdict = await checkHistory(cluster, { key, pets, readers: 24, reads: isLong ? 50_000 : 4_000 });
    expect(verdict.violations).toEqual([]);
    expect(verdict.refusals).toEqual({});
    expect(verdict.writes).toBeGreaterThan(100);
  }, 900_000);

  test("replicas lose no update and let no older one pass it while a tier or database is killed", async () => {
    const kinds: (readonly Target[])[] = [cluster.services, [databaseOf(cluster)], cluster.gateways];
    // The long run kills each kind two hundred times.
    const disturbances = crashesOf(isLong ? kinds.flatMap((kind) => timesOf(200, kind)) : kinds.flat());
    const verdict = await checkHistory(cluster, { key, pets, readers: 24, reads: 4_000, pauseMs, disturbances });
    if (isLong) console.info(verdict);
    expect(verdict.violations).toEqual([]);
    expect(verdict.slowestMs).toBeLessThan(deadlineMs + 2_000); // 2 s for two busy cores
  }, 7_200_000);

  test.each([
    ["updates sent many at once", { isBulk: true }, 10],
    ["updates with a key", { isKeyed: true }, 10],
    ["updates with a key sent many at once", { isBulk: true, isKeyed: true }, 200],
  ])(
    "replicas lose none of the %s and repeat none while services and the database are killed",
    async (_what, updates, longKills) => {
      const disturbances = behindGateways(cluster, longKills);
      const verdict = await checkHistory(cluster, {
        key,
        pets,
        readers: 8,
        reads: 500,
        updates,
        pauseMs,
        disturbances,
      });
      if (isLong) console.info(verdict);
      expect(verdict.violations).toEqual([]);
      if (!("isKeyed" in updates)) return;
      expect(verdict.refusedWrites).toBe(0); // a kill is a delay
      expect(verdict.repeats).toBeGreaterThan(20);
    },
    7_200_000,
  );

  test("replicas of both tiers make an update with a key once while gateways are killed, too", async () => {
    const disturbances = crashesOf(isLong ? timesOf(200, cluster.gateways) : cluster.gateways);
    const updates = { isBulk: true, isKeyed: true };
    const verdict = await checkHistory(cluster, { key, pets, readers: 8, reads: 500, updates, pauseMs, disturbances });
    if (isLong) console.info(verdict);
    expect(verdict.violations).toEqual([]);
  }, 7_200_000);

  test("replicas apply an adjustment that is retried once while services and database are killed", async () => {
    const disturbances = behindGateways(cluster, 50);
    const petIds = [101n, 102n, 103n];
    const verdict = await checkAdjustments(cluster, {
      petIds,
      callers: isLong ? 6 : 24,
      adjustments: 2_000,
      disturbances,
    });
    if (isLong) console.info(verdict);
    expect(verdict).toMatchObject({ astray: 0, differences: [0n, 0n, 0n] });
    expect(verdict.failed).toBeGreaterThan(0); // the kills had an effect
  }, 7_200_000);

  test.each([
    ["over gRPC", "gRPC", 201n],
    ["over the public API", "POST", 211n],
  ] as const)(
    "adjustments of many pets %s are made once, all or none, in every read, through kills",
    async (_how, way, first) => {
      const gateways = crashesOf(way === "POST" ? timesOf(isLong ? 100 : 3, cluster.gateways) : []);
      const petIds = Array.from({ length: 6 }, (_, i) => first + BigInt(i));
      const disturbances = [...behindGateways(cluster, 50), ...gateways];
      const load = { way, writers: isLong ? 6 : 12, readers: 8, transfers: 1_000 };
      const verdict = await checkTransfers(cluster, { key, petIds, ...load, disturbances });
      if (isLong) console.info(verdict);
      expect(verdict).toMatchObject({ violations: [], astray: 0, differences: petIds.map(() => 0n) });
      for (const count of ["refused", "repeats", "reads"] as const) expect(verdict[count]).toBeGreaterThan(50);
    },
    7_200_000,
  );
});

type Target = Pick<Restartable, "crash">;

/** Kills the services and the database: so many times each in the long run, in turns. */
function behindGateways(cluster: Cluster, longKills: number) {
  const database = databaseOf(cluster);
  return crashesOf(
    isLong
      ? timesOf(longKills, cluster.services).flatMap((service) => [service, database])
      : [...cluster.services, database],
  );
}

const crashesOf = (targets: readonly Target[]) => targets.map((target) => () => target.crash());

function databaseOf({ database }: Cluster): Target {
  return {
    crash: async () => {
      await database.kill("SIGKILL");
      await database.restart();
    },
  };
}

/** So many targets, each in its turn. */
function timesOf<T>(times: number, targets: readonly T[]): T[] {
  return Array.from({ length: times }, (_, i) => targets[i % targets.length]!);
}

interface Planted {
  readonly what: string;
  readonly broken: Partial<ClusterOptions>;
  readonly kinds?: readonly ReadKind[];
  readonly updates?: UpdateWay;
  readonly pauseMs?: number;
}
const brokenGateway = { gatewayScript: "test/faults/broken-gateway.ts" };
const forgetfulGateway = { gatewayScript: "test/faults/forgetful-gateway.ts" };
const carelessGateway = { gatewayScript: "test/faults/careless-gateway.ts" };
const brokenService = { serviceScript: "test/faults/broken-service.ts" };
const forgetfulService = { serviceScript: "test/faults/forgetful-service.ts" };
test.each<Planted>([
  { what: "reads of the list join the check that is under way", broken: brokenGateway, kinds: ["list"] },
  { what: "reads of one entry join the check that is under way", broken: brokenGateway, kinds: ["entry"] },
  { what: "changes leave one revision out", broken: forgetfulGateway, kinds: ["changes"] },
  {
    what: "services answer questions from the read of the head that is under way",
    broken: brokenService,
    kinds: ["list"],
    pauseMs: 100, // more updates would hide it: a service reads the changes again when there are any
  },
  { what: "a gateway leaves one of many updates out", broken: carelessGateway, updates: { isBulk: true } },
  { what: "services forget keys", broken: forgetfulService, updates: { isKeyed: true } },
  { what: "services forget the keys of some writers", broken: forgetfulService, updates: { isKeyed: "half" } },
  { what: "services forget keys of many updates", broken: forgetfulService, updates: { isBulk: true, isKeyed: true } },
])(
  "the check of histories finds it when $what",
  async ({ broken, kinds, updates, pauseMs }) => {
    await using stack = new AsyncDisposableStack();
    const cluster = await startCluster(stack, { gateways: 3, pets, ...broken });
    const key = cluster.system.keys.enterprise;
    const options = { key, pets, readers: 24, reads: 2_000, kinds, updates, pauseMs };
    let found = false;
    for (let round = 0; round < 10 && !found; round++) {
      found = (await checkHistory(cluster, options)).violations.length > 0;
    }
    expect(found).toBe(true);
  },
  300_000,
);

test.each([
  [
    "services make a part of adjustments that are all or none",
    { serviceScript: "test/faults/broken-group-service.ts" },
  ],
  ["services forget request ids of adjustments", forgetfulService],
  ["changes that a gateway tells leave one revision out", forgetfulGateway],
])(
  "the check of adjustments of many pets finds it when %s",
  async (_what, broken) => {
    await using stack = new AsyncDisposableStack();
    const cluster = await startCluster(stack, { gateways: 2, pets, ...broken });
    const { key, petIds } = { key: cluster.system.keys.enterprise, petIds: [201n, 202n, 203n, 204n, 205n] };
    const load = { writers: 8, readers: 4, transfers: 500 };
    const { violations, astray } = await checkTransfers(cluster, { key, petIds, way: "gRPC", ...load });
    expect([...violations, ...Array(astray).fill("astray")]).not.toEqual([]);
  },
  120_000,
);
