import { setTimeout as delay } from "node:timers/promises";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { migrateDatabase } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { checkAdjustments } from "../faults/adjustments.ts";
import { startTiers } from "../faults/cluster.ts";
import { testPepper } from "../support/made-keys.ts";
import { suiteStack } from "../support/stack.ts";
import { type GaleraCluster, startGalera } from "./galera.ts";
import { overtake } from "./overlapping-writes.ts";
import { checkThrough, inTurns, writerFaults } from "./writer-faults.ts";
import { startWriterSwitch } from "./writer-switch.ts";

/** `npm run test:cluster` runs the long version. */
const isLong = process.env.FAULTS === "long";
const pets = 8;
const petIds = [101n, 102n, 103n];

describe("a Galera cluster", () => {
  const stack = suiteStack();
  let galera: GaleraCluster;

  beforeAll(async () => {
    galera = await startGalera(stack);
  }, 120_000);

  test("two services that each write to a node of their own apply every adjustment once", async () => {
    await using tiersStack = new AsyncDisposableStack();
    const [first, second] = galera.nodes;
    const tiers = await startTiers(tiersStack, [first!.url(""), second!.url("")], { gateways: 0, pets: 1 });
    const verdict = await checkAdjustments(tiers, {
      petIds,
      callers: 12,
      adjustments: 100,
      disturbances: [() => delay(isLong ? 600_000 : 20_000)],
      settle: galera.settle,
    });
    console.info(verdict);
    expect(verdict).toMatchObject({ astray: 0, falselyDenied: 0, differences: [0n, 0n, 0n] });
  }, 900_000);

  test("a newer change through another node is not undone by an older one that is held up", async () => {
    expect(await overtake(galera.nodes, galera.settle)).toEqual({ afterUpdates: 5, afterAdjustments: 16 });
  }, 120_000);

  test("a key that is revoked through a node that does not know it yet is dead", async () => {
    await using keysStack = new AsyncDisposableStack();
    const [first, second] = galera.nodes;
    const rows = 3_500; // a node is behind while it applies a change of so many without a key
    await first!.query("CREATE DATABASE late_keys");
    await migrateDatabase(first!.url("late_keys"), "gateway", gatewayMigrations);
    await first!.query("CREATE TABLE late_keys.slow (a INT, b INT)");
    await first!.query(`INSERT INTO late_keys.slow SELECT seq, 0 FROM late_keys.seq_1_to_${rows}`, 20_000);
    await galera.settle();
    const [here, there] = [first!, second!].map((node) => {
      const db = openDatabase(node.url("late_keys"));
      keysStack.defer(() => db.destroy());
      return createKeyAdmin(db, Date.now);
    });
    await Promise.all([here!.list(), there!.list()]); // connects
    await first!.query("UPDATE late_keys.slow SET b = 1", 20_000);
    const { keyId } = await here!.issue({ ...storedKey(createKey("live", testPepper), testPepper), account: "acme" });
    expect((await there!.revoke(keyId)).revokedAtMs).toBeGreaterThan(0);
  }, 60_000);

  test("the check of adjustments finds those that go astray when statements are sent in packets", async () => {
    await using tiersStack = new AsyncDisposableStack();
    const [first, second] = galera.nodes;
    const serviceScript = "test/cluster/careless-service.ts";
    const tiers = await startTiers(tiersStack, [first!.url(""), second!.url("")], {
      gateways: 0,
      pets: 1,
      serviceScript,
    });
    const verdict = await checkAdjustments(tiers, {
      petIds,
      callers: 12,
      adjustments: 100,
      disturbances: [() => delay(10_000)],
      settle: galera.settle,
    });
    console.info(verdict);
    expect(verdict.astray).toBeGreaterThan(0);
  }, 120_000);

  test("both tiers lose no update and show nothing older while the writer is switched and killed", async () => {
    await using tiersStack = new AsyncDisposableStack();
    const writerSwitch = await startWriterSwitch(tiersStack, galera);
    const { serverUrl } = writerSwitch;
    const tiers = await startTiers(tiersStack, [serverUrl, serverUrl], { gateways: 2, pets });
    await galera.settle(); // a node that is killed while it changes a schema cannot join again
    const { planned, killed } = writerFaults(galera, writerSwitch);
    const run = isLong ? inTurns([30, planned], [12, killed]) : [planned, killed];
    const verdict = await checkThrough(run, tiers, pets);
    expect(verdict.violations).toEqual([]);
    expect(Math.max(...verdict.effects.map(({ gapMs }) => gapMs))).toBeGreaterThan(100); // the faults had an effect
  }, 1_800_000);

  test("two services apply every acknowledged adjustment once while the writer is killed", async () => {
    await using tiersStack = new AsyncDisposableStack();
    const { serverUrl, writer } = await startWriterSwitch(tiersStack, galera);
    const tiers = await startTiers(tiersStack, [serverUrl, serverUrl], { gateways: 0, pets: 1 });
    await galera.settle(); // a node that is killed while it changes a schema cannot join again
    const crash = async () => {
      const old = await writer();
      await old.kill();
      await writer();
      await galera.rejoin(old);
    };
    const verdict = await checkAdjustments(tiers, {
      petIds,
      callers: 12,
      adjustments: 500,
      disturbances: Array.from({ length: isLong ? 12 : 2 }, () => crash),
      settle: galera.settle,
    });
    console.info(verdict);
    expect(verdict).toMatchObject({ astray: 0, falselyDenied: 0, differences: [0n, 0n, 0n] });
    expect(verdict.failed).toBeGreaterThan(0); // the kills had an effect
  }, 900_000);
});
