import { setTimeout as delay } from "node:timers/promises";
import { openDatabase } from "../../runtime/database/open.ts";
import { connectInventory, type Inventory, refusalOf } from "../support/grpc.ts";
import { until } from "../support/until.ts";
import type { Tiers } from "./cluster.ts";

/** The result of a run. */
export interface AdjustmentVerdict {
  /** Distinct adjustments that were acknowledged. */
  readonly acknowledged: number;
  /** The number of them that an earlier attempt had made, although its caller saw it fail. */
  readonly replayed: number;
  /** Attempts that failed. */
  readonly failed: number;
  /** Replayed adjustments although every failure had said that nothing has happened. */
  readonly falselyDenied: number;
  /** Adjustments that were acknowledged but not stored, or stored but not acknowledged. */
  readonly astray: number;
  /** For each pet, the difference between the stock and the sum of the acknowledged adjustments. */
  readonly differences: readonly bigint[];
}

export interface AdjustmentOptions {
  /** Pets that this run creates and no other caller changes. */
  readonly petIds: readonly bigint[];
  readonly callers: number;
  /** The run ends when at least this number was acknowledged and all disturbances are over. */
  readonly adjustments: number;
  /** Run during the load, one after the other, each after 20 more acknowledgements. */
  readonly disturbances: readonly (() => Promise<void>)[];
  /** Waits until the first service's database has what the second one wrote, where they use two. */
  readonly settle?: () => Promise<void>;
}

/** Far from both bounds, so that no adjustment may be refused. */
const startQuantity = 1_000_000_000;

const attemptTimeoutMs = 3_000;

/** The reasons of refusals after which nothing has happened. */
const denials: ReadonlySet<string> = new Set(["STOCK_UNAVAILABLE", "QUEUE_FULL"]);

/**
 * Sends adjustments through both services and retries each with its request id until it is acknowledged. At the end it
 * compares the stock with the sum of the acknowledged adjustments.
 */
export async function checkAdjustments(cluster: Tiers, options: AdjustmentOptions): Promise<AdjustmentVerdict> {
  const { petIds, callers, adjustments, disturbances } = options;
  const clients = cluster.services.map(({ current }) => connectInventory(current.listen));
  await Promise.all(petIds.map((petId) => clients[0]!.create({ petId, quantity: startQuantity, status: 1 })));

  const acknowledged = new Map<string, { petId: bigint; delta: number }>();
  const counts = { replayed: 0, failed: 0, falselyDenied: 0 };
  let isDisturbing = true;
  const isDone = () => acknowledged.size >= adjustments && !isDisturbing;

  const call = async (caller: number) => {
    for (let n = 0; !isDone(); n++) {
      const adjustment = {
        petId: petIds[(caller + n) % petIds.length]!,
        delta: ((caller * 31 + n * 17) % 19) - 9 || 10,
        requestId: `${caller}:${n}`,
      };
      await sendUntilAcknowledged(clients, adjustment, caller + n, counts);
      acknowledged.set(adjustment.requestId, adjustment);
    }
  };
  await Promise.all([
    ...Array.from({ length: callers }, (_, i) => call(i)),
    (async () => {
      for (const disturb of disturbances) {
        const before = acknowledged.size;
        await until(() => acknowledged.size >= before + 20, { withinMs: 60_000 });
        await disturb();
      }
      isDisturbing = false;
    })(),
  ]);
  for (const client of clients) client.close();
  await options.settle?.();
  return { acknowledged: acknowledged.size, ...counts, ...(await compare(cluster, petIds, acknowledged)) };
}

/** Sends one adjustment to the services in turn until it is acknowledged, and counts what happened. */
async function sendUntilAcknowledged(
  clients: readonly Inventory[],
  adjustment: { petId: bigint; delta: number; requestId: string },
  firstTurn: number,
  counts: { replayed: number; failed: number; falselyDenied: number },
): Promise<void> {
  let mayHaveHappened = false;
  for (let turn = firstTurn; ; turn++) {
    const options = { deadline: Date.now() + attemptTimeoutMs };
    const call = clients[turn % clients.length]!.adjust(adjustment, options);
    try {
      if (!(await call).replayed) return;
      counts.replayed += 1;
      if (!mayHaveHappened) counts.falselyDenied += 1;
      return;
    } catch {
      counts.failed += 1;
      // A call that fails without details, such as one whose service was killed, says nothing.
      const reason = await refusalOf(call).then(
        (refusal) => refusal.reason,
        () => undefined,
      );
      if (reason === undefined || !denials.has(reason)) mayHaveHappened = true;
      await delay(20);
    }
  }
}

/** Compares the acknowledged adjustments with the database. */
async function compare(
  { system }: Tiers,
  petIds: readonly bigint[],
  acknowledged: ReadonlyMap<string, { petId: bigint; delta: number }>,
): Promise<Pick<AdjustmentVerdict, "astray" | "differences">> {
  const db = openDatabase(system.databaseUrls.inventory);
  try {
    const remembered: string[] = await db("stock_ledger")
      .whereIn("pet_id", petIds as never[])
      .whereNotNull("once_id")
      .pluck("once_id");
    const rows: { pet_id: bigint; quantity: number }[] = await db("stock").whereIn("pet_id", petIds as never[]);
    const expected = new Map(petIds.map((petId) => [petId, BigInt(startQuantity)]));
    for (const { petId, delta } of acknowledged.values()) expected.set(petId, expected.get(petId)! + BigInt(delta));
    const known = remembered.filter((requestId) => acknowledged.has(requestId)).length;
    return {
      astray: remembered.length - known + (acknowledged.size - known),
      differences: rows.map((row) => BigInt(row.quantity) - expected.get(row.pet_id)!),
    };
  } finally {
    await db.destroy();
  }
}
