import { setTimeout as delay } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { Pool } from "undici";
import { openDatabase } from "../../runtime/database/open.ts";
import { formFaults } from "../simulation/answer-form.ts";
import { type AskedChange, type Attempt, type History, judge, type Read, type Version } from "../simulation/oracle.ts";
import { LoopClock } from "../support/loop-clock.ts";
import { until } from "../support/until.ts";
import type { Tiers } from "./cluster.ts";

/** What a reader reads: the list, one entry, or the changes since its latest read of the list. */
export type ReadKind = "list" | "entry" | "changes";

/** What a run was like. Times of its history are milliseconds since its start. */
interface Recorded {
  /** Its start, by the clock of this process. */
  readonly zeroMs: number;
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
  /** Answers that no kill explains. */
  readonly faults: readonly string[];
  /** The longest time that a request took, answered or not. */
  readonly slowestMs: number;
  /** What each disturbance did, from its start until after its end. */
  readonly effects: readonly Effect[];
  /** Those that got no 200. */
  readonly failedReads: readonly FailedRead[];
  readonly brokenConnections: readonly BrokenConnection[];
}

/** A request without an answer. */
export interface BrokenConnection {
  /** The index of the gateway that it was sent to. */
  readonly gateway: number;
  readonly callMs: number;
  readonly returnMs: number;
  /** What became of the connection. */
  readonly what: string;
}

export interface FailedRead extends Pick<Read, "callMs" | "returnMs" | "petIds" | "since"> {
  readonly kind: ReadKind;
  /** The status, or what became of the connection. */
  readonly answer: string;
}

/** The result of a run that was judged. */
export interface Verdict extends Recorded {
  /** What contradicts the promises. */
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
  /** The run ends when at least this number of reads was made and all disturbances are over. */
  readonly reads: number;
  /** How updates are sent; default: each as a PATCH. */
  readonly updates?: UpdateWay;
  /** How long each caller waits before a request; default: not at all. Processes that are killed start sooner then. */
  readonly pauseMs?: number | undefined;
  /** Run during the load, one after the other. */
  readonly disturbances?: Iterable<() => Promise<void>>;
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

interface Result {
  readonly quantity?: number;
  readonly etag: string;
  readonly error?: { readonly status: number };
}

/** Whether what a request got in place of a 200 is an answer, and not the fault of a connection. */
const isStatus = (what: string) => /^\d{3}$/.test(what);

/** All that these requests may get, whatever is killed. */
const allowedStatuses = [200, 503, 504];

/** Pets of one writer that sends many updates at once. */
const petsPerWriter = 4;

/**
 * Times of the database are whole milliseconds, and by its clock. So a commit counts as a bit earlier than it says, and
 * an update as asked for a bit earlier still: an update comes before its commit, and a commit before its answer.
 */
const clockSlackMs = 5;

/** Reads and writes through all gateways, and has the oracle judge every answer by what the database has committed. */
export async function checkHistory(cluster: Tiers, options: HistoryOptions): Promise<Verdict> {
  const { history, ...recorded } = await recordHistory(cluster, options);
  return { ...recorded, violations: [...recorded.faults, ...judgeRecorded(history)] };
}

/** @returns what contradicts the promises, by the clocks of callers and database, which are not the same */
export function judgeRecorded({ commits, changes, reads }: History): string[] {
  return judge({
    commits: commits.map((commit) => ({ ...commit, atMs: commit.atMs - clockSlackMs })),
    changes: changes.map((change) => ({
      ...change,
      attempts: change.attempts.map((attempt) => ({ ...attempt, callMs: attempt.callMs - 2 * clockSlackMs })),
    })),
    reads,
  });
}

/** Reads and writes through all gateways. */
export async function recordHistory(
  cluster: Tiers,
  options: HistoryOptions,
): Promise<Recorded & { readonly history: History }> {
  using clock = new LoopClock();
  const zeroMs = performance.now();
  const nowMs = () => performance.now() - zeroMs;
  const { key, pets, readers, kinds = ["list", "entry", "changes"], pauseMs, disturbances = [] } = options;
  const { isBulk = false, isKeyed = false } = options.updates ?? {};
  const changes: AskedChange[] = [];
  const reads: Read[] = [];
  const counts = { writes: 0, repeats: 0, refused: 0, refusedWrites: 0, slowestMs: 0 };
  const refusals: Record<string, number> = {};
  const failedReads: FailedRead[] = [];
  const brokenConnections: BrokenConnection[] = [];
  const faults: string[] = [];
  const gap = { longestMs: 0, lastMs: 0 };
  const effects: Effect[] = [];
  const pools = cluster.gateways.map(({ current }) => new Pool(`http://${current.listen}`, { connections: 32 }));
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const stock = stockOf(cluster.system.databaseUrls.inventory, nowMs);
  const begun = await stock.begin();
  let isDisturbing = true;
  const isDone = () => reads.length >= options.reads && !isDisturbing;

  const pause = async () => {
    if (pauseMs !== undefined) await delay(pauseMs);
  };

  const send = async (turn: number, method: "GET" | "PATCH" | "POST", path: string, more: object) => {
    const startedMs = clock.nowMs;
    const callMs = nowMs();
    const gateway = turn % pools.length;
    try {
      const answer = await pools[gateway]!.request({ method, path, ...more });
      const bytes = Buffer.from(await answer.body.arrayBuffer());
      const { statusCode: status, headers } = answer;
      const text = (headers["content-encoding"] === "gzip" ? gunzipSync(bytes) : bytes).toString();
      const wrong = formFaults({ status, headers, body: text });
      if (!allowedStatuses.includes(status)) wrong.push(`${status} ${text}`);
      faults.push(...wrong.map((fault) => `${method} ${path} at ${nowMs().toFixed(0)}: ${fault}`));
      if (status !== 200) throw new Error(String(status));
      return { body: JSON.parse(text), etag: String(headers.etag) };
    } catch (error) {
      // The gateway, or a process that it calls, was killed during the request.
      const { code, message } = error as Error & { code?: string };
      const what = code ?? message;
      refusals[what] = (refusals[what] ?? 0) + 1;
      if (!isStatus(what)) brokenConnections.push({ gateway, callMs, returnMs: nowMs(), what });
      return what;
    } finally {
      counts.slowestMs = Math.max(counts.slowestMs, clock.nowMs - startedMs);
    }
  };
  const refuse = async (isWrite: boolean) => {
    counts.refused += 1;
    if (isWrite) counts.refusedWrites += 1;
    await delay(5);
  };

  /** Sends updates of different pets. @returns whether all of them were made */
  const attempt = async (turn: number, asked: readonly AskedChange[], hasKey: boolean): Promise<boolean> => {
    const [{ petId, quantity }] = asked as readonly [AskedChange];
    const all = { ...headers, ...(hasKey ? { "idempotency-key": `${petId}:${quantity}` } : {}) };
    const callMs = nowMs();
    const body = asked.map((change) => ({ petId: change.petId, quantity: change.quantity }));
    const answer = isBulk
      ? await send(turn, "POST", "/v1/inventory/updates", { headers: all, body: JSON.stringify(body) })
      : await send(turn, "PATCH", `/v1/inventory/${petId}`, { headers: all, body: `{"quantity":${quantity}}` });
    const isAnswered = typeof answer === "object";
    const results: Result[] = isAnswered ? [answer.body].flat() : [];
    for (const [i, { attempts }] of asked.entries()) {
      const result = results[i];
      const etag = isBulk ? result?.etag : isAnswered ? answer.etag : undefined;
      const outcome: Attempt["outcome"] =
        result && etag && !result.error
          ? { kind: "done", revision: BigInt(etag.slice(2, -1)), quantity: result.quantity! }
          : { kind: "unknown", isAnswered: isAnswered || isStatus(answer) };
      const got = isAnswered ? String(result?.error?.status ?? 200) : String(answer);
      attempts.push({ callMs, returnMs: nowMs(), outcome, answer: got });
    }
    if (!isAnswered) await refuse(true);
    return results.length > 0 && results.every(({ error }) => !error);
  };

  const write = async (petIds: readonly number[], writer: number) => {
    const hasKeys = isKeyed === "half" ? writer % 2 === 1 : isKeyed;
    let previous: readonly AskedChange[] | undefined;
    for (let turn = petIds[0]!; !isDone(); turn++) {
      await pause();
      const asked = petIds.map((petId): AskedChange => {
        next[petId]! += 1;
        return { kind: "set", petId, quantity: next[petId]!, attempts: [] };
      });
      changes.push(...asked);
      let isMade = await attempt(turn, asked, hasKeys);
      while (hasKeys && !isMade) {
        turn += 1;
        isMade = await attempt(turn, asked, true);
      }
      if (!isMade) continue;
      counts.writes += asked.length;
      gap.longestMs = Math.max(gap.longestMs, performance.now() - gap.lastMs);
      gap.lastMs = performance.now();
      if (!hasKeys) continue;
      if (previous && (await attempt(turn + 1, previous, true))) counts.repeats += 1;
      previous = asked;
    }
  };

  /** Reads once. @returns the tag of the answer; undefined without one */
  const read = async (turn: number, kind: ReadKind, since = ""): Promise<string | undefined> => {
    const petId = 1 + (turn % pets);
    const paths = { list: "", entry: `/${petId}`, changes: `/changes?since=${since}` };
    const zipped = kind === "list" && turn % 4 === 0 ? { "accept-encoding": "gzip" } : {};
    const callMs = nowMs();
    const answer = await send(turn, "GET", `/v1/inventory${paths[kind]}`, { headers: { ...headers, ...zipped } });
    const what = kind === "entry" ? { petIds: [petId] } : kind === "changes" ? { since } : {};
    if (typeof answer === "string") {
      failedReads.push({ kind, callMs, returnMs: nowMs(), answer, ...what });
      return void (await refuse(false));
    }
    const { body, etag } = answer;
    const tag = (kind === "changes" ? (body.etag as string) : etag).replace(/"|-gzip/g, "");
    reads.push({ kind, callMs, returnMs: nowMs(), status: 200, tag, body, ...what });
    return tag;
  };

  const readOn = async (reader: number) => {
    let tag: string | undefined;
    for (let turn = reader; !isDone(); turn++) {
      await pause();
      const wanted = kinds[Math.floor(turn / pools.length) % kinds.length]!; // each kind through each gateway
      const kind = wanted === "changes" && !tag ? "list" : wanted;
      const found = await read(turn, kind, tag);
      if (kind !== "entry") tag = found ?? tag;
    }
  };

  const next = Array.from(
    { length: pets + 1 },
    (_, petId) => begun.rows.find((row) => row.petId === petId)?.quantity ?? 0,
  );
  const petIds = Array.from({ length: pets }, (_, i) => i + 1);
  const writers = isBulk
    ? [...Map.groupBy(petIds, (petId) => Math.floor((petId - 1) / petsPerWriter)).values()]
    : petIds.map((petId) => [petId]);
  await Promise.all([
    ...writers.map(write),
    ...Array.from({ length: readers }, (_, i) => readOn(i)),
    (async () => {
      for (const disturb of disturbances) {
        Object.assign(gap, { longestMs: 0, lastMs: performance.now() });
        const { refused } = counts;
        await disturb();
        const { writes } = counts;
        await until(() => counts.writes > writes, { withinMs: 60_000 });
        effects.push({ gapMs: Math.round(gap.longestMs), refused: counts.refused - refused });
      }
      isDisturbing = false;
    })(),
  ]);
  // At rest, every gateway shows what the table has, and the table what the ledger says.
  for (const turn of pools.keys())
    if (!(await read(turn, "list"))) faults.push(`at rest, gateway ${turn} gives no list`);
  const history = { commits: await stock.commitsSince(begun), changes, reads: [...reads, await stock.read()] };
  await Promise.all([...pools.map((pool) => pool.destroy()), stock.close()]);
  return { ...counts, zeroMs, reads: reads.length, refusals, faults, effects, failedReads, brokenConnections, history };
}

type Row = Omit<Version, "removed"> & { readonly removed: number };

/** Has the states of entries, and of the head those without a petId. */
const notes = "history_notes";
const states = "quantity, status, removed, pet_id";
const note = (values: string) =>
  `insert into ${notes} (revision, ${states}, at) values (new.revision, ${values}, unix_timestamp(now(3)) * 1000)`;
const noteState = note("new.quantity, new.status, new.removed, new.pet_id");

/** Triggers of the database, which know nothing of the services: what these say of themselves is not asked. */
const noteStates = [
  `create table if not exists ${notes} (id bigint auto_increment primary key, revision bigint not null, quantity int,
    status varchar(16), removed int, pet_id bigint, at bigint not null, index (revision))`,
  ...["head", "insert", "update"].map((name) => `drop trigger if exists note_${name}`),
  `create trigger note_head after update on stock_head for each row
    if new.revision <> old.revision then ${note("null, null, null, null")}; end if`,
  `create trigger note_insert after insert on stock for each row ${noteState}`,
  `create trigger note_update after update on stock for each row ${noteState}`,
];

/** Reads the stock behind the backs of the services. */
function stockOf(databaseUrl: string, nowMs: () => number) {
  const db = openDatabase(databaseUrl);
  // The clock of the day, which the database tells, does not go as evenly as that of the run.
  const zeros = [{ atMs: Date.now(), zeroMs: Date.now() - nowMs() }];
  const timer = setInterval(() => zeros.push({ atMs: Date.now(), zeroMs: Date.now() - nowMs() }), 100).unref();
  const entries = async () => {
    const [head] = await db("stock_head").select("epoch", "revision");
    const rows: Row[] = await db("stock")
      .select("pet_id as petId", "quantity", "status", "revision", "removed")
      .orderBy("pet_id");
    return { ...(head as { epoch: string; revision: bigint }), rows: rows.map(toVersion) };
  };
  return {
    /** Has the database note every state from now on, and reads the present one. */
    begin: async () => {
      for (const statement of noteStates) await db.raw(statement);
      return await entries();
    },
    /** The table as if it were an answer. */
    read: async (): Promise<Read> => {
      const [callMs, { epoch, revision, rows }] = [nowMs(), await entries()];
      const body = rows.flatMap(({ petId, quantity, status, removed }) => (removed ? [] : { petId, quantity, status }));
      return {
        kind: "list",
        callMs,
        returnMs: nowMs(),
        status: 200,
        tag: `${epoch.slice(0, 8)}-${revision}`,
        body,
      };
    },
    /** What was committed after a state, by what the triggers have noted. */
    commitsSince: async ({
      epoch,
      revision,
      rows,
    }: Awaited<ReturnType<typeof entries>>): Promise<History["commits"]> => {
      const noted: (Row & { readonly at: bigint })[] = await db(notes)
        .select("pet_id as petId", "quantity", "status", "revision", "removed", "at")
        .where("revision", ">", revision as never)
        .orderBy("revision");
      const [heads, states] = [
        noted.filter(({ petId }) => petId === null),
        noted.filter(({ petId }) => petId !== null),
      ];
      let from = 0;
      let zero = 0;
      const commits = heads.map((head) => {
        const begin = from;
        while (from < states.length && states[from]!.revision <= head.revision) from += 1;
        const changed = states.slice(begin, from).map(({ at: _, ...row }) => toVersion(row));
        while (zero < zeros.length - 1 && zeros[zero + 1]!.atMs <= Number(head.at)) zero += 1;
        const atMs = Number(head.at) - zeros[zero]!.zeroMs;
        return { atMs, epoch, revision: head.revision, rows: changed, isRestore: false };
      });
      return [{ atMs: Number.NEGATIVE_INFINITY, epoch, revision, rows, isRestore: false }, ...commits];
    },
    close: async () => {
      clearInterval(timer);
      await db.destroy();
    },
  };
}

const toVersion = (row: Row): Version => ({
  ...row,
  petId: Number(row.petId),
  quantity: Number(row.quantity),
  removed: Number(row.removed) === 1,
});
