/** Counts the requests of accounts on Redis, for all gateways together. */
import { setImmediate as nextTurn } from "node:timers/promises";
import calculateSlot from "cluster-key-slot";
import type { Cluster, Redis } from "ioredis";
import { Batches } from "../../runtime/batches.ts";
import { invariant } from "../../runtime/invariant.ts";
import { answersPerTurn, SharedRead } from "../../runtime/shared-read.ts";
import { type ChargeAnswer, type CountReport, indexAt, lengthsMs } from "./limit-rule.ts";
import { answerOf, argumentsOf, chargeScript } from "./limit-rule-lua.ts";
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

/** The question to Redis about one account: how many of its waiting requests are admitted. */
interface AccountBatch {
  readonly counts: AccountCounts;
  readonly requests: readonly PendingDecision[];
}

/** Gateways that a limit is divided between while Redis answers: together they count as one. */
const asOne = 1;

/** Maximum accounts in one call of the script: Redis does nothing else while it runs. */
const accountsPerCall = 200;

/** Maximum requests whose calls are under way together. Redis runs these one by one, within the same time limit. */
const maxTogether = 4_000;

/**
 * The number is the version of the format. While gateways are replaced, those with another format must not meet these
 * keys.
 */
const keyPrefix = "petstore:counts:1:";

/**
 * Counts all windows of an account in one round trip. The requests that wait share it, and an account that has nothing
 * left is refused from memory until its window ends. When Redis fails, or the breaker is open, `memory` decides.
 */
export class RedisWindows implements Limiter {
  readonly #options: RedisWindowsOptions;
  readonly #client: Client;
  // Requests that arrive in one turn of the event loop share the first call.
  readonly #batches = new Batches<PendingDecision>((take) => this.#decideAll(take(maxTogether)), nextTurn);
  // Callers go on in the turn in which they get their decision, and all other work waits for that.
  readonly #decided = new Batches<() => void>(async (take) => {
    for (const tell of take(answersPerTurn)) tell();
    await nextTurn();
  });
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

  /** Decides all requests of these batches with one call of the script; without an answer they are decided alone. */
  async #call(batches: readonly AccountBatch[]): Promise<void> {
    const { memory, breaker, clockOffsetMs } = this.#options;
    if (breaker.isOpen) return this.#decideAlone(batches); // it has opened while they waited for their call
    const reports = batches.map((batch) => reportOf(memory.nameOf(batch.counts), batch));
    const keysAndArguments = [
      ...batches.map(({ counts }) => keyPrefix + counts.id),
      clockOffsetMs?.() ?? 0,
      ...batches.flatMap(({ counts }, i) => argumentsOf(reports[i]!, counts.phaseMs)),
    ];
    const call = async () => {
      const numbers = await this.#client.chargeWindows(batches.length, ...keysAndArguments);
      const nowMs = numbers[0]!;
      const answers = batches.map((_, i) => answerOf(numbers, i));
      for (const [i, answer] of answers.entries()) {
        refuseFallenCounts(answer, reports[i]!, (w) => indexAt(nowMs, batches[i]!.counts.phaseMs, lengthsMs[w]!));
      }
      return { nowMs, answers };
    };
    const sentAtMs = memory.elapsedMs();
    const answered = await breaker.run(keyPrefix + batches[0]!.counts.id, call).catch(() => undefined);
    if (answered) {
      memory.followClock(answered.nowMs, sentAtMs);
      for (const [i, batch] of batches.entries()) this.#decideByAnswer(batch, answered.nowMs, answered.answers[i]!);
      return;
    }
    this.#decideAlone(batches);
    // Redis may have counted them, and other gateways may have heard of it.
    for (const { counts } of batches) for (let w = 0; w < lengthsMs.length; w++) countIn(counts, w).alone = 0;
  }

  /** Decides the requests of an account, in the order in which they came. */
  #decideByAnswer({ counts, requests }: AccountBatch, nowMs: number, answer: ChargeAnswer): void {
    this.#options.memory.learn(counts, nowMs, answer);
    let left = answer.admittedCount;
    for (const { windows, cost, resolve } of requests) {
      left -= cost;
      const admitted = cost === 0 || left >= 0;
      const decision = decisionOf(counts, windows, { nowMs, admitted, sharers: asOne, following: Math.max(0, left) });
      this.#decided.add(() => resolve(decision));
    }
  }

  #decideAlone(batches: readonly AccountBatch[]): void {
    for (const { counts, windows, cost, resolve } of batches.flatMap(({ requests }) => requests)) {
      const decision = this.#alone(counts, windows, cost);
      this.#decided.add(() => resolve(decision));
    }
  }
}

/** Makes the report about an account. When its plan has just changed, the limits of the latest request count. */
function reportOf(countsName: string, { counts, requests }: AccountBatch): CountReport {
  const windows = requests.at(-1)?.windows ?? [];
  return {
    countsName,
    wanted: requests.reduce((wanted, { cost }) => wanted + cost, 0),
    limits: lengthsMs.map((_, w) => windows[w]?.limit ?? 0),
    counts: lengthsMs.map((_, w) => ({ ...countIn(counts, w) })),
  };
}

/**
 * Checks that Redis knows no less of a running window than it was just told: counts only grow, even where it lost its
 * data.
 *
 * @param indexOf gives the number of the window that runs now
 * @throws InvariantError
 */
function refuseFallenCounts(answer: ChargeAnswer, told: CountReport, indexOf: (w: number) => number): void {
  const { admittedCount, charges } = answer;
  invariant(admittedCount >= 0 && admittedCount <= told.wanted, "Redis admits no more requests than were asked for");
  for (const [w, { index, own, synced, others }] of told.counts.entries()) {
    if (index !== indexOf(w)) continue;
    const hasGrown = charges[w]!.others >= others && charges[w]!.charged >= Math.max(own, synced);
    invariant(hasGrown, "the counts of a window never fall while it runs");
  }
}
