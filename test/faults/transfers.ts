import { setTimeout as delay } from "node:timers/promises";
import { Pool } from "undici";
import { openDatabase } from "../../runtime/database/open.ts";
import { connectInventory, refusalOf } from "../support/grpc.ts";
import { until } from "../support/until.ts";
import type { Tiers } from "./cluster.ts";

/** The result of a run. */
export interface TransferVerdict {
  /** Requests that were acknowledged, of 2 to 4 adjustments each. */
  readonly acknowledged: number;
  /** Requests that ask for more than there is, and were refused for it. */
  readonly refused: number;
  /** Repeats of acknowledged requests that were answered. */
  readonly repeats: number;
  /** Attempts that failed. */
  readonly failed: number;
  readonly reads: number;
  /** Adjustments of acknowledged requests that the ledger does not have, and all others that it has. */
  readonly astray: number;
  /** For each pet, the difference between the stock and the sum of the acknowledged adjustments. */
  readonly differences: readonly bigint[];
  /** The first reads with another sum than there is, and answers that contradict others. */
  readonly violations: readonly string[];
}

export interface TransferOptions {
  readonly key: string;
  /** At least 5 pets that this run creates and no other caller changes. */
  readonly petIds: readonly bigint[];
  /** Whether the writers call the services, or the public API. */
  readonly way: "gRPC" | "POST";
  readonly writers: number;
  readonly readers: number;
  /** The run ends when at least this number of requests was acknowledged and all disturbances are over. */
  readonly transfers: number;
  /** Run during the load, one after the other, each after 20 more acknowledgements. */
  readonly disturbances?: readonly (() => Promise<void>)[];
  /** Waits until the first service's database has what the second one wrote, where they use two. */
  readonly settle?: () => Promise<void>;
}

interface Adjustment {
  readonly petId: bigint;
  readonly delta: number;
}

/** What became of a request: the quantities that it left, or that it asks for too much; undefined when not known. */
type Result = readonly number[] | "insufficient" | undefined;

/** Far from both bounds, so that only what asks for more than this is refused. */
const startQuantity = 1_000_000_000;
const tooMuch = -2_000_000_000;

const attemptTimeoutMs = 3_000;

/**
 * Moves pieces between pets, which several writers share, by requests that are made all or none, and retries each with
 * its key until it is answered. Since every request takes as many as it adds, each read of all pets has the same sum.
 * Some requests end with an adjustment that takes too much: they may change nothing.
 */
export async function checkTransfers(cluster: Tiers, options: TransferOptions): Promise<TransferVerdict> {
  const { petIds, way, disturbances = [] } = options;
  const services = cluster.services.map(({ current }) => connectInventory(current.listen));
  const gateways = cluster.gateways.map(({ current }) => new Pool(`http://${current.listen}`, { connections: 32 }));
  const headers = { authorization: `Bearer ${options.key}`, "content-type": "application/json" };
  await Promise.all(petIds.map((petId) => services[0]!.create({ petId, quantity: startQuantity, status: 1 })));

  const acknowledged = new Map<string, readonly Adjustment[]>();
  const counts = { refused: 0, repeats: 0, failed: 0, reads: 0 };
  const violations: string[] = [];
  let isDisturbing = true;
  const isDone = () => (acknowledged.size >= options.transfers && !isDisturbing) || violations.length > 0;

  const call = async (turn: number, adjustments: readonly Adjustment[], requestId: string): Promise<Result> => {
    const calling = services[turn % services.length]!.batchAdjust(
      { adjustments: [...adjustments], requestId },
      { deadline: Date.now() + attemptTimeoutMs },
    );
    try {
      return (await calling).items.map(({ quantity }) => quantity);
    } catch {
      // A call that fails without details, such as one whose service was killed, says nothing.
      const reason = await refusalOf(calling)
        .then((refusal) => refusal.reason)
        .catch(() => undefined);
      return reason === "INSUFFICIENT_STOCK" ? "insufficient" : undefined;
    }
  };

  const request = async (turn: number, method: "GET" | "POST", path: string, more: object = {}) => {
    try {
      const answer = await gateways[turn % gateways.length]!.request({ method, path, headers, ...more });
      return { status: answer.statusCode, etag: String(answer.headers.etag), text: await answer.body.text() };
    } catch {
      return undefined; // the gateway was killed
    }
  };
  const post = async (turn: number, adjustments: readonly Adjustment[], requestId: string): Promise<Result> => {
    const answer = await request(turn, "POST", "/v1/inventory/adjustments", {
      headers: { ...headers, "idempotency-key": requestId },
      body: `[${adjustments.map(({ petId, delta }) => `{"petId":${petId},"delta":${delta}}`)}]`,
    });
    if (answer?.status === 200) return JSON.parse(answer.text).map(({ quantity }: { quantity: number }) => quantity);
    return answer?.text.includes('"insufficient_stock"') ? "insufficient" : undefined;
  };
  const attempt = way === "gRPC" ? call : post;

  /** Sends a request, to each process in turn, until it is answered. */
  const send = async (turn: number, adjustments: readonly Adjustment[], requestId: string): Promise<Result> => {
    for (let next = turn; violations.length === 0; next++) {
      const result = await attempt(next, adjustments, requestId);
      if (result !== undefined) return result;
      counts.failed += 1;
      await delay(20);
    }
    return undefined;
  };

  const write = async (writer: number) => {
    for (let n = 0; !isDone(); n++) {
      const requestId = `${way}:${writer}:${n}`;
      const adjustments = transferOf(petIds, writer, n);
      if (n % 5 === 4) {
        const result = await send(writer + n, [...adjustments, { petId: petIds.at(-1)!, delta: tooMuch }], requestId);
        if (result === "insufficient") counts.refused += 1;
        else if (result) violations.push(`${requestId} takes too much and left ${result}`);
        continue;
      }
      const result = await send(writer + n, adjustments, requestId);
      if (result === undefined) return;
      if (result === "insufficient") violations.push(`${requestId} is refused`);
      acknowledged.set(requestId, adjustments);
      if (n % 3 !== 0) continue;
      const again = await send(writer + n + 1, adjustments, requestId);
      counts.repeats += 1;
      if (again && String(again) !== String(result))
        violations.push(`${requestId} left ${result}, its repeat ${again}`);
    }
  };

  const sum = BigInt(petIds.length * startQuantity);
  const read = async (reader: number) => {
    const copy = new Map<bigint, number>();
    let since = "";
    const take = (entries: readonly { petId: number | bigint; quantity: number }[]) => {
      for (const { petId, quantity } of entries) copy.set(BigInt(petId), quantity);
    };
    /** How the pets are read. @returns false without an answer */
    const ways = {
      list: async (turn: number) => {
        const answer = await request(turn, "GET", "/v1/inventory");
        if (answer?.status !== 200) return false;
        since = answer.etag;
        take(JSON.parse(answer.text));
        return true;
      },
      changes: async (turn: number) => {
        const answer = await request(turn, "GET", `/v1/inventory/changes?since=${encodeURIComponent(since)}`);
        if (answer?.status !== 200) return false;
        const { etag, changed } = JSON.parse(answer.text);
        since = etag;
        take(changed);
        return true;
      },
      part: async (turn: number) => {
        const answer = await request(turn, "GET", `/v1/inventory?petIds=${petIds}`);
        if (answer?.status !== 200) return false;
        since = answer.etag;
        take(JSON.parse(answer.text));
        return true;
      },
      service: async (turn: number) => {
        const { items } = await services[turn % services.length]!.batchGet({ petIds: [...petIds] });
        since = "";
        take(items);
        return true;
      },
    };
    const names = ["list", "changes", "part", "changes", "service"] as const;
    for (let turn = reader; !isDone(); turn++) {
      const name = names[turn % names.length]!;
      if (name === "changes" && since === "") continue;
      const isAnswered = await ways[name](turn).catch(() => false);
      if (!isAnswered) await delay(5);
      if (!isAnswered || copy.size < petIds.length) continue;
      counts.reads += 1;
      const found = petIds.reduce((total, petId) => total + BigInt(copy.get(petId)!), 0n);
      if (found !== sum) violations.push(`${name}: the sum is ${found}, not ${sum}`);
    }
  };

  await Promise.all([
    ...Array.from({ length: options.writers }, (_, i) => write(i)),
    ...Array.from({ length: options.readers }, (_, i) => read(i)),
    (async () => {
      for (const disturb of disturbances) {
        const before = acknowledged.size;
        await until(() => acknowledged.size >= before + 20 || violations.length > 0, { withinMs: 60_000 });
        if (violations.length > 0) break;
        await disturb();
      }
      isDisturbing = false;
    })(),
  ]);
  for (const service of services) service.close();
  await Promise.all(gateways.map((pool) => pool.destroy()));
  await options.settle?.();
  return { acknowledged: acknowledged.size, ...counts, violations, ...(await compare(cluster, petIds, acknowledged)) };
}

/** Takes from one pet what it adds to 1 to 3 others. */
function transferOf(petIds: readonly bigint[], writer: number, n: number): Adjustment[] {
  const shared = petIds.slice(0, -1);
  const count = 2 + (n % 3);
  const delta = 1 + ((writer * 31 + n * 17) % 19);
  return Array.from({ length: count }, (_, i) => ({
    petId: shared[(writer + n + i) % shared.length]!,
    delta: i === 0 ? -delta * (count - 1) : delta,
  }));
}

/** Compares the acknowledged requests with the database. */
async function compare(
  { system }: Tiers,
  petIds: readonly bigint[],
  acknowledged: ReadonlyMap<string, readonly Adjustment[]>,
): Promise<Pick<TransferVerdict, "astray" | "differences">> {
  const db = openDatabase(system.databaseUrls.inventory);
  try {
    const ids: string[] = await db("stock_ledger")
      .whereIn("pet_id", petIds as never[])
      .whereNotNull("once_id")
      .pluck("once_id");
    const kept = new Set(ids.map((id) => id.split(" ").slice(1).join(" "))); // without the account
    const made = new Set([...acknowledged].flatMap(([id, adjustments]) => adjustments.map((_, i) => `${id} #${i}`)));
    const rows: { pet_id: bigint; quantity: number }[] = await db("stock").whereIn("pet_id", petIds as never[]);
    const expected = new Map(petIds.map((petId) => [petId, BigInt(startQuantity)]));
    for (const { petId, delta } of [...acknowledged.values()].flat()) {
      expected.set(petId, expected.get(petId)! + BigInt(delta));
    }
    return {
      astray: [...new Set([...kept, ...made])].filter((id) => !kept.has(id) || !made.has(id)).length,
      differences: rows.map((row) => BigInt(row.quantity) - expected.get(row.pet_id)!),
    };
  } finally {
    await db.destroy();
  }
}
