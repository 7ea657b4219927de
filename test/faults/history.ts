import { setTimeout as delay } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { Pool } from "undici";
import { LoopClock } from "../support/loop-clock.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { until } from "../support/until.ts";
import type { Tiers } from "./cluster.ts";

interface Entry {
  readonly petId: number;
  readonly quantity: number;
}

/** What a reader reads: the list, one entry, or the changes since its latest read of the list. */
export type ReadKind = "list" | "entry" | "changes";

interface Row {
  readonly pet_id: number;
  readonly quantity: number;
  readonly status: string;
}

/** The result of a run. */
export interface Verdict {
  readonly reads: number;
  readonly writes: number;
  /** Repeats of older updates with their keys. */
  readonly repeats: number;
  /** Updates that got no 200 because a process was killed. */
  readonly refusedWrites: number;
  /** Requests that got no 200 because a process was killed. */
  readonly refused: number;
  /** What these got: how often each status, or each fault of the connection. */
  readonly refusals: Readonly<Record<string, number>>;
  /** The longest time that a request took, answered or not. */
  readonly slowestMs: number;
  /** What each disturbance did, from its start until after its end. */
  readonly effects: readonly Effect[];
  /** The first reads that contradict what was acknowledged. */
  readonly violations: readonly string[];
}

export interface Effect {
  /** The longest time without an acknowledged update. */
  readonly gapMs: number;
  /** Requests that got no 200. */
  readonly refused: number;
}

export interface HistoryOptions {
  readonly key: string;
  readonly pets: number;
  readonly readers: number;
  /** What they read, in turns; default: everything. */
  readonly kinds?: readonly ReadKind[];
  /** The run ends when at least this number of reads was checked and all disturbances are over. */
  readonly reads: number;
  /** How updates are sent; default: each as a PATCH. */
  readonly updates?: UpdateWay;
  /** How long each caller waits before a request; default: not at all. Processes that are killed start sooner then. */
  readonly pauseMs?: number | undefined;
  /** Run during the load, one after the other. */
  readonly disturbances?: readonly (() => Promise<void>)[];
}

export interface UpdateWay {
  /** Each writer sends the updates of several pets in one request. */
  readonly isBulk?: boolean;
  /**
   * Each request has a key. After a failure the writer sends it again with its key, until it is answered, so that no
   * update is in doubt. It sends every request once more after the next one: that must give its first answer again.
   * "half": so it is with every second writer, beside others without keys.
   */
  readonly isKeyed?: boolean | "half";
}

interface Result extends Entry {
  readonly replayed?: true;
  readonly error?: object;
}

/** Pets of one writer that sends many updates at once. */
const petsPerWriter = 4;

/**
 * Reads and writes through all gateways and checks every read.
 *
 * Each pet has one writer, which counts up. A read of a pet is right when it is at least the number that was
 * acknowledged before the read began, and at most the number that was sent before the read ended. After a failed update
 * the writer continues with a higher number. The failed update may still happen at any time, so a read of its number is
 * right at any later time. With keys there is no such number: the writer repeats the update until it is answered.
 */
export async function checkHistory(cluster: Tiers, options: HistoryOptions): Promise<Verdict> {
  using clock = new LoopClock();
  const { key, pets, readers, kinds = ["list", "entry", "changes"], pauseMs, disturbances = [] } = options;
  const { isBulk = false, isKeyed = false } = options.updates ?? {};
  const sent = new Array<number>(pets + 1).fill(0);
  const acknowledged = new Array<number>(pets + 1).fill(0);
  const unknown = Array.from({ length: pets + 1 }, () => new Set<number>());
  const violations: string[] = [];
  const counts = { reads: 0, writes: 0, repeats: 0, refused: 0, refusedWrites: 0, slowestMs: 0 };
  const refusals: Record<string, number> = {};
  const gap = { longestMs: 0, lastMs: 0 };
  const effects: Effect[] = [];
  const pools = cluster.gateways.map(({ current }) => new Pool(`http://${current.listen}`, { connections: 32 }));
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  let isDisturbing = true;
  const isDone = () => (counts.reads >= options.reads && !isDisturbing) || violations.length > 0;

  const pause = async () => {
    if (pauseMs !== undefined) await delay(pauseMs);
  };

  const send = async (turn: number, method: "GET" | "PATCH" | "POST", path: string, more: object) => {
    const startedMs = clock.nowMs;
    try {
      const answer = await pools[turn % pools.length]!.request({ method, path, ...more });
      const bytes = Buffer.from(await answer.body.arrayBuffer());
      if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
      const text = (answer.headers["content-encoding"] === "gzip" ? gunzipSync(bytes) : bytes).toString();
      return { text, etag: String(answer.headers.etag) };
    } catch (error) {
      // The gateway, or a process that it calls, was killed during the request.
      const { code, message } = error as Error & { code?: string };
      const what = code ?? message;
      refusals[what] = (refusals[what] ?? 0) + 1;
    } finally {
      counts.slowestMs = Math.max(counts.slowestMs, clock.nowMs - startedMs);
    }
    counts.refused += 1;
    if (method !== "GET") counts.refusedWrites += 1;
    await delay(5);
    return undefined;
  };

  /** Sends updates of different pets. @returns their results; undefined when there is no answer */
  const update = async (turn: number, entries: readonly Entry[], hasKey: boolean): Promise<Result[] | undefined> => {
    const [{ petId, quantity }] = entries as readonly [Entry];
    const all = { ...headers, ...(hasKey ? { "idempotency-key": `${petId}:${quantity}` } : {}) };
    const answer = isBulk
      ? await send(turn, "POST", "/v1/inventory/updates", { headers: all, body: JSON.stringify(entries) })
      : await send(turn, "PATCH", `/v1/inventory/${petId}`, { headers: all, body: `{"quantity":${quantity}}` });
    return answer && [JSON.parse(answer.text)].flat();
  };

  const write = async (petIds: readonly number[], writer: number) => {
    const hasKeys = isKeyed === "half" ? writer % 2 === 1 : isKeyed;
    let previous: { entries: readonly Entry[]; results: readonly Result[] } | undefined;
    for (let turn = petIds[0]!; !isDone(); turn++) {
      await pause();
      const entries = petIds.map((petId) => {
        sent[petId]! += 1;
        return { petId, quantity: sent[petId]! };
      });
      let results = await update(turn, entries, hasKeys);
      while (hasKeys && (results === undefined || results.some(({ error }) => error)) && violations.length === 0) {
        turn += 1;
        results = await update(turn, entries, hasKeys);
      }
      for (const [i, { petId, quantity }] of entries.entries()) {
        if (results === undefined || results[i]!.error) {
          unknown[petId]!.add(quantity);
          continue;
        }
        acknowledged[petId] = quantity;
        counts.writes += 1;
      }
      if (results === undefined) continue;
      gap.longestMs = Math.max(gap.longestMs, performance.now() - gap.lastMs);
      gap.lastMs = performance.now();
      if (!hasKeys) continue;
      if (previous) await repeat(turn + 1, previous.entries, previous.results);
      previous = { entries, results };
    }
  };

  const repeat = async (turn: number, entries: readonly Entry[], first: readonly Result[]) => {
    const results = await update(turn, entries, true);
    if (results === undefined || results.some(({ error }) => error)) return;
    counts.repeats += 1;
    const without = (all: readonly Result[]) => JSON.stringify(all.map(({ replayed: _, ...entry }) => entry));
    if (without(results) !== without(first)) violations.push(`a repeat got ${without(results)}, not ${without(first)}`);
  };

  const readOf = readsOf(
    (turn, path, more = {}) => send(turn, "GET", path, { headers: { ...headers, ...more } }),
    pets,
  );
  const read = async (reader: number) => {
    const copy: Copy = { etag: "", quantities: new Map() };
    for (let turn = reader; !isDone(); turn++) {
      await pause();
      const before = acknowledged.slice();
      const kind = kinds[Math.floor(turn / pools.length) % kinds.length]!; // each kind through each gateway
      const entries = await readOf[kind](turn, copy);
      if (entries === undefined) continue;
      counts.reads += 1;
      for (const { petId, quantity } of entries) {
        if (quantity >= before[petId]! && quantity <= sent[petId]!) continue;
        if (unknown[petId]!.has(quantity)) continue;
        violations.push(`pet ${petId}: ${kind} ${quantity}, acknowledged ${before[petId]}, sent ${sent[petId]}`);
      }
    }
  };

  const started = JSON.parse((await send(0, "GET", "/v1/inventory", { headers }))!.text) as Entry[];
  for (const { petId, quantity } of started) sent[petId] = acknowledged[petId] = quantity;

  const petIds = Array.from({ length: pets }, (_, i) => i + 1);
  const writers = isBulk
    ? [...Map.groupBy(petIds, (petId) => Math.floor((petId - 1) / petsPerWriter)).values()]
    : petIds.map((petId) => [petId]);
  await Promise.all([
    ...writers.map(write),
    ...Array.from({ length: readers }, (_, i) => read(i)),
    (async () => {
      for (const disturb of disturbances) {
        if (violations.length > 0) break;
        Object.assign(gap, { longestMs: 0, lastMs: performance.now() });
        const { refused } = counts;
        await disturb();
        const { writes } = counts;
        await until(() => counts.writes > writes || violations.length > 0, { withinMs: 60_000 });
        effects.push({ gapMs: Math.round(gap.longestMs), refused: counts.refused - refused });
      }
      isDisturbing = false;
    })(),
  ]);
  const table = await listOf(cluster.system.databaseUrls.inventory);
  for (const turn of pools.keys()) {
    const answer = await send(turn, "GET", "/v1/inventory", { headers });
    if (answer?.text !== table) violations.push(`at rest, gateway ${turn}`);
  }
  await Promise.all(pools.map((pool) => pool.destroy()));
  return { ...counts, refusals, effects, violations };
}

/** A copy of the list that a reader keeps by the changes. */
interface Copy {
  etag: string;
  readonly quantities: Map<number, number>;
}

type Get = (
  turn: number,
  path: string,
  more?: Readonly<Record<string, string>>,
) => Promise<{ readonly text: string; readonly etag: string } | undefined>;

/** How each kind is read. @returns functions that give the entries as they are read; undefined without an answer */
function readsOf(get: Get, pets: number) {
  const list = async (turn: number, copy: Copy) => {
    const answer = await get(turn, "/v1/inventory", turn % 4 === 0 ? { "accept-encoding": "gzip" } : {});
    if (!answer) return undefined;
    const entries = JSON.parse(answer.text) as Entry[];
    copy.etag = answer.etag;
    for (const { petId, quantity } of entries) copy.quantities.set(petId, quantity);
    return entries;
  };
  const entry = async (turn: number) => {
    const answer = await get(turn, `/v1/inventory/${1 + (turn % pets)}`);
    return answer && [JSON.parse(answer.text) as Entry];
  };
  const changes = async (turn: number, copy: Copy) => {
    if (copy.etag === "") return await list(turn, copy);
    const answer = await get(turn, `/v1/inventory/changes?since=${encodeURIComponent(copy.etag)}`);
    if (!answer) return undefined;
    const { etag, changed } = JSON.parse(answer.text) as { readonly etag: string; readonly changed: readonly Entry[] };
    copy.etag = etag;
    for (const { petId, quantity } of changed) copy.quantities.set(petId, quantity);
    return Array.from(copy.quantities, ([petId, quantity]) => ({ petId, quantity }));
  };
  return { list, entry, changes } satisfies Record<ReadKind, unknown>;
}

/** Reads the list by a plain SELECT. */
async function listOf(databaseUrl: string): Promise<string> {
  const connection = await connectMysql(databaseUrl);
  const [rows] = await connection.query("SELECT pet_id, quantity, status FROM stock WHERE NOT removed ORDER BY pet_id");
  await connection.end();
  return JSON.stringify((rows as Row[]).map(({ pet_id, quantity, status }) => ({ petId: pet_id, quantity, status })));
}
