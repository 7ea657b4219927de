import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { openDatabase } from "../../runtime/database/open.ts";
import { checkAdjustments } from "../faults/adjustments.ts";
import { startTiers, type Tiers } from "../faults/cluster.ts";
import { suiteStack } from "../support/stack.ts";
import type { DatabaseCluster } from "./database-cluster.ts";
import { startGroupReplication } from "./group-replication.ts";
import { overtake } from "./overlapping-writes.ts";
import { checkThrough, inTurns, writerFaults } from "./writer-faults.ts";
import { startWriterSwitch } from "./writer-switch.ts";

/** `npm run test:cluster` runs the long version. */
const isLong = process.env.FAULTS === "long";
const pets = 8;

describe("MySQL Group Replication", () => {
  const stack = suiteStack();
  let group: DatabaseCluster;
  let tiers: Tiers;
  let faults: ReturnType<typeof writerFaults>;

  beforeAll(async () => {
    group = await startGroupReplication(stack);
    const writerSwitch = await startWriterSwitch(stack, group);
    faults = writerFaults(group, writerSwitch);
    tiers = await startTiers(stack, [writerSwitch.serverUrl, writerSwitch.serverUrl], { gateways: 2, pets });
  }, 180_000);

  test("the queries of growth.md tell the primary from the other members", async () => {
    const text = readFileSync(new URL("../../docs/growth.md", import.meta.url), "utf8");
    const [, sql] = /^## MySQL Group Replication$.*?^```sql\n(.*?)^```/ms.exec(text)!;
    const [namesPrimary, describesNode] = sql!.split(";\n") as [string, string];
    const answers = await Promise.all(
      group.nodes.map(async (node) => {
        const [[named], [itself]] = [await node.query<object>(namesPrimary), await node.query<object>(describesNode)];
        const [uuid, ...state] = Object.values(itself!).map(String);
        return [Object.values(named!)[0] === uuid, ...state];
      }),
    );
    const standby = [false, "1", "SECONDARY", "1"];
    expect(answers).toEqual([[true, "0", "PRIMARY", "1"], standby, standby]);
  });

  test("both tiers answer every request with 200 while the primary is switched by plan", async () => {
    const run = Array.from({ length: isLong ? 20 : 3 }, () => faults.planned);
    const verdict = await checkThrough(run, tiers, pets);
    expect(verdict).toMatchObject({ refused: 0, violations: [] });
  }, 600_000);

  test("both tiers lose no update and show nothing older through switches, kills and freezes", async () => {
    const { planned, killed, frozen } = faults;
    const run = isLong ? inTurns([40, planned], [10, killed], [6, frozen]) : [planned, killed, planned, frozen];
    const verdict = await checkThrough(run, tiers, pets);
    expect(verdict.violations).toEqual([]);
    expect(verdict.refused).toBeGreaterThan(0); // the faults had an effect
  }, 1_800_000);

  test("both tiers apply every adjustment once while the primary is switched and killed", async () => {
    const run = isLong ? inTurns([10, faults.planned], [4, faults.killed]) : [faults.planned, faults.killed];
    const verdict = await checkAdjustments(tiers, {
      petIds: [101n, 102n, 103n],
      callers: 12,
      adjustments: 500,
      disturbances: run.map((fault) => fault.run),
    });
    console.info(verdict);
    expect(verdict).toMatchObject({ astray: 0, falselyDenied: 0, differences: [0n, 0n, 0n] });
  }, 1_800_000);
});

describe("several primaries", () => {
  const stack = suiteStack();
  let group: DatabaseCluster;

  beforeAll(async () => {
    group = await startGroupReplication(stack, { multiPrimary: true });
  }, 180_000);

  test("two services that each write to a primary of their own apply every adjustment once", async () => {
    const [first, second] = group.nodes;
    const tiers = await startTiers(stack, [first!.url(""), second!.url("")], { gateways: 0, pets: 1 });
    const verdict = await checkAdjustments(tiers, {
      petIds: [101n, 102n, 103n],
      callers: 12,
      adjustments: 500,
      disturbances: [() => delay(isLong ? 60_000 : 5_000)],
    });
    console.info(verdict);
    expect(verdict).toMatchObject({ astray: 0, falselyDenied: 0, differences: [0n, 0n, 0n] });
  }, 300_000);

  test("a newer change through another primary is not undone by an older one that is held up", async () => {
    expect(await overtake(group.nodes, () => delay(1_000))).toEqual({ afterUpdates: 5, afterAdjustments: 16 });
  }, 120_000);

  test("a plain account without any privilege for it reads what another primary has acknowledged", async () => {
    const [first, second] = group.nodes;
    await first!.query("CREATE DATABASE plain");
    await first!.query("CREATE USER plain@'127.0.0.1' IDENTIFIED BY 'plain'");
    await first!.query("GRANT SELECT ON plain.* TO plain@'127.0.0.1'");
    const url = new URL(second!.url("plain"));
    Object.assign(url, { username: "plain", password: "plain" });
    const db = openDatabase(url.href);
    stack.defer(() => db.destroy());
    const [[session]] = await db.raw("SELECT @@SESSION.group_replication_consistency AS consistency");
    expect(session).toEqual({ consistency: "BEFORE" });
  });
});
