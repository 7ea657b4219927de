/** Counts the requests of accounts on Redis, for all gateways together. */
import calculateSlot from "cluster-key-slot";
import type { Cluster, Redis } from "ioredis";
import { Batches } from "../../runtime/batches.ts";
import { invariant } from "../../runtime/invariant.ts";
import { SharedRead } from "../../runtime/shared-read.ts";
import { indexAt, lengthsMs } from "./limit-rule.ts";
import { chargeScript } from "./limit-rule-lua.ts";
import { type AccountCounts, countIn, decisionOf, type MemoryWindows } from "./memory-windows.ts";
import type { Breaker } from "./redis-breaker.ts";
import type { Decision, Limiter, Window, WindowsNow } from "./windows.ts";

/** Commands that ioredis adds by `defineCommand`. */
type Client = (Redis | Cluster) & {
  chargeWindows(keyCount: number, ...keysAndArguments: readonly (string | number)[]): Promise<number[]>;
};

export interface RedisWindowsOptions {
  readonly redis: Redis | Cluster;
  /** Keeps what this gateway knows, and decides while Redis is away. */
  readonly memory: MemoryWindows;
  readonly breaker: Breaker;
  /** Milliseconds to add to the clock of Redis; for tests. */
  readonly clockOffsetMs?: () => number;
}

/** A request that waits for its decision. */
interface PendingDecision {
  readonly counts: AccountCounts;
  readonly windows: readonly Window[];
  readonly cost: 0 | 1;
  readonly resolve: (decision: Decision) => void;
}

/** What Redis is asked about one account: how many of the requests that wait it admits. */
interface AccountBatch {
  readonly counts: AccountCounts;
  readonly requests: readonly PendingDecision[];
}

/** With Redis no limit is divided: gateways count as one. */
const asOne = 1;

/** Accounts in one call of the script: Redis does nothing else while it runs. */
const accountsPerCall = 200;

/** Maximum requests whose calls are under way together. Redis runs these one by one, within the same time limit. */
const maxTogether = 4_000;

/**
 * The number is the version of the format. While gateways are replaced, those with another format must not meet these
 * keys.
 */
const keyPrefix = "petstore:counts:1:";

/**
 * All windows of an account in one round trip. The requests that wait share it, and an account that has nothing left is
 * refused from memory until its window ends. When Redis fails, or the breaker is open, `memory` decides.
 */
export class RedisWindows implements Limiter {
  readonly #options: RedisWindowsOptions;
  readonly #client: Client;
  // Requests that arrive in one turn of the event loop share the first call.
  readonly #batches = new Batches<PendingDecision>(
    (take) => this.#decideAll(take(maxTogether)),
    () => new Promise(setImmediate),
  );
  readonly #reports = new SharedRead(() => this.#reportAll());

  constructor(options: RedisWindowsOptions) {
    this.#options = options;
    options.redis.defineCommand("chargeWindows", { lua: chargeScript });
    this.#client = options.redis as Client;
  }

  charge(id: string, windows: readonly Window[]): Decision | Promise<Decision> {
    return this.#ask(id, windows, 1);
  }

  /** Redis knows the counts of all gateways, so it is asked even where nothing is charged, or nothing is left. */
  readShared(id: string, windows: readonly Window[]): WindowsNow | Promise<WindowsNow> {
    return this.#ask(id, windows, 0);
  }

  readLocal(id: string, windows: readonly Window[]): WindowsNow {
    const { memory, breaker } = this.#options;
    const counts = memory.countsOf(id);
    return breaker.isOpen ? memory.read(counts, windows) : memory.read(counts, windows, asOne);
  }

  /**
   * Tells Redis all that this gateway knows. Call it whenever Redis is back: it may have lost its data, and it has not
   * heard of what this gateway admitted alone. Until then the other gateways would admit as much again.
   */
  async reportCounts(): Promise<void> {
    await this.#reports.next();
  }

  async #reportAll(): Promise<void> {
    const { memory, breaker } = this.#options;
    let batches: AccountBatch[] = [];
    for (const counts of memory.running()) {
      if (breaker.isOpen) return;
      batches.push({ counts, requests: [] });
      if (batches.length < accountsPerCall) continue;
      await this.#askAll(batches);
      batches = [];
    }
    await this.#askAll(batches);
  }

  #ask(id: string, windows: readonly Window[], cost: 0 | 1): Decision | Promise<Decision> {
    const { memory, breaker } = this.#options;
    const counts = memory.countsOf(id);
    if (breaker.isOpen) return this.#alone(counts, windows, cost);
    if (cost === 1) {
      const nowMs = memory.nowMs(); // once: the window must not end between the two
      if (memory.isSpent(counts, windows, asOne, nowMs)) return memory.read(counts, windows, asOne, nowMs);
    }
    return new Promise((resolve) => this.#batches.add({ counts, windows, cost, resolve }));
  }

  #alone(counts: AccountCounts, windows: readonly Window[], cost: 0 | 1): Decision {
    const { memory } = this.#options;
    return cost === 0 ? memory.read(counts, windows) : memory.chargeAlone(counts, windows);
  }

  async #decideAll(requests: readonly PendingDecision[]): Promise<void> {
    const byAccount = Map.groupBy(requests, ({ counts }) => counts);
    await this.#askAll(Array.from(byAccount, ([counts, ofAccount]) => ({ counts, requests: ofAccount })));
  }

  /** Asks in calls of a bounded size, all at once, so that their waits overlap. */
  async #askAll(batches: readonly AccountBatch[]): Promise<void> {
    const calls: Promise<void>[] = [];
    for (let i = 0; i < batches.length; i += accountsPerCall) {
      for (const ofCall of this.#splitBySlot(batches.slice(i, i + accountsPerCall))) calls.push(this.#call(ofCall));
    }
    await Promise.all(calls);
  }

  /** In a cluster one call can only reach the keys of one slot. */
  #splitBySlot(batches: readonly AccountBatch[]): (readonly AccountBatch[])[] {
    if (!this.#client.isCluster) return [batches];
    return [...Map.groupBy(batches, ({ counts }) => calculateSlot(keyPrefix + counts.id)).values()];
  }

  /** Settles all requests of these batches with one call of the script; without an answer they are decided alone. */
  async #call(batches: readonly AccountBatch[]): Promise<void> {
    const { memory, breaker, clockOffsetMs } = this.#options;
    const keysAndArguments: (string | number)[] = batches.map(({ counts }) => keyPrefix + counts.id);
    keysAndArguments.push(clockOffsetMs?.() ?? 0);
    const firstReport = keysAndArguments.length;
    for (const batch of batches) pushReport(keysAndArguments, memory.nameOf(batch.counts), batch);
    const sentAtMs = memory.elapsedMs();
    let answer: readonly number[];
    try {
      const call = async () => {
        const answered = await this.#client.chargeWindows(batches.length, ...keysAndArguments);
        refuseFallenCounts(answered, keysAndArguments.slice(firstReport));
        return answered;
      };
      answer = await breaker.run(keyPrefix + batches[0]!.counts.id, call);
    } catch {
      for (const { counts, requests } of batches) {
        for (const { windows, cost, resolve } of requests) resolve(this.#alone(counts, windows, cost));
        // Redis may have counted them, and other gateways may have heard of it.
        for (let w = 0; w < lengthsMs.length; w++) countIn(counts, w).alone = 0;
      }
      return;
    }
    memory.followClock(answer[0]!, sentAtMs);
    let at = 1;
    for (const batch of batches) {
      this.#decideByAnswer(batch, answer, at);
      at += answerLength;
    }
  }

  /** Settles the requests of an account, in the order in which they came. @param at where its answer begins */
  #decideByAnswer({ counts, requests }: AccountBatch, answer: readonly number[], at: number): void {
    const nowMs = answer[0]!;
    let left = answer[at]!;
    this.#options.memory.learn(counts, nowMs, left, answer, at + 1);
    for (const { windows, cost, resolve } of requests) {
      left -= cost;
      const admitted = cost === 0 || left >= 0;
      resolve(decisionOf(counts, windows, { nowMs, admitted, gateways: 1, following: Math.max(0, left) }));
    }
  }
}

/** Numbers of one account in a report before those of its windows: its name on Redis, its phase, how many it wants. */
const headLength = 3;
/** The numbers of each window in a report, in this order. */
const reportFields = ["limit", "index", "own", "alone", "synced", "others"] as const;
const reportLength = headLength + reportFields.length * lengthsMs.length;
/**
 * Numbers of one account in an answer: how many are admitted, and for each window the charges of others and its own.
 */
const answerLength = 1 + 2 * lengthsMs.length;

type ReportedWindow = Record<(typeof reportFields)[number], number>;

/** Adds the arguments of one account. When its plan has just changed, the limits of the latest request count. */
function pushReport(target: (string | number)[], name: string, { counts, requests }: AccountBatch): void {
  const windows = requests.at(-1)?.windows ?? [];
  target.push(
    name,
    counts.phaseMs,
    requests.reduce((wanted, { cost }) => wanted + cost, 0),
  );
  for (let w = 0; w < lengthsMs.length; w++) {
    const window: ReportedWindow = { limit: windows[w]?.limit ?? 0, ...countIn(counts, w) };
    for (const field of reportFields) target.push(window[field]);
  }
}

/** The numbers of a window in the report of one account. */
function windowOf(report: readonly number[], w: number): ReportedWindow {
  const window = {} as ReportedWindow;
  let at = headLength + w * reportFields.length;
  for (const field of reportFields) window[field] = report[at++]!;
  return window;
}

/**
 * Checks that Redis knows no less of a running window than it was just told: counts only grow, even where it lost its
 * data.
 *
 * @throws InvariantError
 */
function refuseFallenCounts(answer: readonly number[], reported: readonly (string | number)[]): void {
  const nowMs = answer[0]!;
  for (let account = 0; account * reportLength < reported.length; account++) {
    const report = reported.slice(account * reportLength, (account + 1) * reportLength) as number[];
    const [, phaseMs, wanted] = report;
    const [admitted, ...charges] = answer.slice(1 + account * answerLength, 1 + (account + 1) * answerLength);
    invariant(admitted! >= 0 && admitted! <= wanted!, "Redis admits no more requests than were asked for");
    for (let w = 0; w < lengthsMs.length; w++) {
      const { index, own, synced, others } = windowOf(report, w);
      if (index !== indexAt(nowMs, phaseMs!, lengthsMs[w]!)) continue;
      const [answerOthers, answerCharged] = charges.slice(2 * w, 2 * (w + 1));
      const hasGrown = answerOthers! >= others && answerCharged! >= Math.max(own, synced);
      invariant(hasGrown, "the counts of a window never fall while it runs");
    }
  }
}
