/** Counts the requests of accounts on Redis, for all replicas together. */
import calculateSlot from "cluster-key-slot";
import type { Cluster, Redis } from "ioredis";
import { LRUCache } from "lru-cache";
import { Batches } from "../../runtime/batches.ts";
import { SharedRead } from "../../runtime/shared-read.ts";
import type { MemoryWindows } from "../limits/memory-windows.ts";
import type { Count, Decision, Limiter, Window, WindowState } from "../limits/windows.ts";
import type { Breaker } from "./breaker.ts";
import { inTime } from "./connection.ts";
import { decideScript } from "./script.ts";

/** Commands that ioredis adds by `defineCommand`. */
type Client = (Redis | Cluster) & {
  decideWindows(keyCount: number, ...keysAndArguments: readonly (string | number)[]): Promise<number[]>;
};

export interface RedisWindowsOptions {
  readonly redis: Redis | Cluster;
  /** Decides while Redis is away, and remembers what Redis answered about each caller. */
  readonly memory: MemoryWindows;
  readonly breaker: Breaker;
  /** Milliseconds to add to the clock of Redis; for tests. */
  readonly clockOffsetMs?: () => number;
}

/** A request that waits for its decision. */
interface Waiting {
  readonly id: string;
  readonly windows: readonly Window[];
  readonly cost: 0 | 1;
  readonly resolve: (decision: Decision) => void;
  readonly reject: (error: unknown) => void;
}

/** The waiting requests of one caller. */
interface Question {
  readonly id: string;
  readonly windows: readonly Window[];
  readonly requests: Waiting[];
}

interface Refusal {
  readonly decision: Decision;
  /** When it was received, by a clock that only goes forward. */
  readonly receivedAtMs: number;
}

/** Callers in one call of the script: Redis does nothing else while it runs. */
const maxCallers = 200;

const maxRefusals = 100_000;

const keyPrefix = "petstore:limits:";

/**
 * All windows of a caller in one round trip. The requests that wait share a call, and a refused caller is answered from
 * memory until its window ends. When Redis fails, or the breaker is open, `memory` decides.
 */
export class RedisWindows implements Limiter {
  readonly #options: RedisWindowsOptions;
  readonly #client: Client;
  readonly #refusals = new LRUCache<string, Refusal>({ max: maxRefusals });
  // Requests that arrive in one turn of the event loop share the first call.
  readonly #batches = new Batches<Waiting>(
    (take) => this.#decideAll(take()),
    () => new Promise(setImmediate),
  );
  readonly #report = new SharedRead(() => this.#reportAll());

  constructor(options: RedisWindowsOptions) {
    this.#options = options;
    options.redis.defineCommand("decideWindows", { lua: decideScript });
    this.#client = options.redis as Client;
  }

  async decide(id: string, windows: readonly Window[]): Promise<Decision> {
    try {
      return await this.#ask(id, windows, 1);
    } catch {
      return await this.#options.memory.decide(id, windows);
    }
  }

  /** Redis knows the counts of all replicas, so it is asked even where nothing is charged. */
  async look(id: string, windows: readonly Window[]): Promise<Decision> {
    try {
      return await this.#ask(id, windows, 0);
    } catch {
      return await this.#options.memory.look(id, windows);
    }
  }

  /**
   * Tells Redis all that this replica knows. Call it whenever Redis is back: it may have lost its data, and it has not
   * heard of what this replica admitted alone. Until then the other replicas would admit as much again.
   */
  async report(): Promise<void> {
    await this.#report.next();
  }

  async #reportAll(): Promise<void> {
    const { memory, breaker } = this.#options;
    const questions = memory.running().map((caller): Question => ({ ...caller, requests: [] }));
    for (let i = 0; i < questions.length && !breaker.isOpen; i += maxCallers) {
      await this.#askAll(questions.slice(i, i + maxCallers));
    }
  }

  /** @param cost 1, or 0 to look without a charge @throws what is wrong with Redis */
  #ask(id: string, windows: readonly Window[], cost: 0 | 1): Promise<Decision> {
    const refusal = this.#runningRefusal(id, windows);
    if (refusal) return Promise.resolve(refusal);
    return new Promise((resolve, reject) => this.#batches.add({ id, windows, cost, resolve, reject }));
  }

  /** The refusal that still holds for a caller, with the times of now. */
  #runningRefusal(id: string, windows: readonly Window[]): Decision | undefined {
    const refusal = this.#refusals.get(id);
    if (!refusal) return undefined;
    const nowMs = refusal.decision.nowMs + this.#elapsedMs() - refusal.receivedAtMs;
    const holds = refusal.decision.windows.every(
      ({ limit, remaining, resetAtMs }, i) => windows[i]?.limit === limit && (remaining > 0 || resetAtMs > nowMs),
    );
    if (holds) return { ...refusal.decision, windows: windowsAt(refusal.decision.windows, nowMs), nowMs };
    this.#refusals.delete(id);
    return undefined;
  }

  /** A clock that only goes forward; in tests it steps with the clock of Redis. */
  #elapsedMs(): number {
    return performance.now() + (this.#options.clockOffsetMs?.() ?? 0);
  }

  async #decideAll(requests: readonly Waiting[]): Promise<void> {
    await this.#askAll(groupByCaller(requests));
  }

  async #askAll(questions: Question[]): Promise<void> {
    for (let i = 0; i < questions.length; i += maxCallers) {
      const calls = this.#splitBySlot(questions.slice(i, i + maxCallers));
      await Promise.all(calls.map((ofCall) => this.#call(ofCall)));
    }
  }

  /** In a cluster one call can only reach the keys of one slot. */
  #splitBySlot(questions: Question[]): Question[][] {
    if (!this.#client.isCluster) return [questions];
    return [...Map.groupBy(questions, ({ id }) => calculateSlot(keyPrefix + id)).values()];
  }

  /** Settles all requests of the questions with one call of the script. */
  async #call(questions: readonly Question[]): Promise<void> {
    const { memory, breaker, clockOffsetMs } = this.#options;
    const taken = questions.map(({ id }) => memory.takeUnsent(id));
    const keysAndArguments: (string | number)[] = questions.map(({ id }) => keyPrefix + id);
    keysAndArguments.push(clockOffsetMs?.() ?? 0, questions[0]!.windows.length);
    questions.forEach((question, i) => {
      pushArguments(keysAndArguments, question, taken[i]!);
    });
    let answer: readonly number[];
    try {
      const call = () => inTime(this.#client.decideWindows(questions.length, ...keysAndArguments));
      answer = await breaker.run(keyPrefix + questions[0]!.id, call);
    } catch (error) {
      questions.forEach(({ id, requests }, i) => {
        memory.restoreUnsent(id, taken[i]!);
        for (const { reject } of requests) reject(error);
      });
      return;
    }
    let at = 1;
    questions.forEach((question, i) => {
      this.#settle(question, taken[i]!, answer, at);
      at += 1 + 2 * question.windows.length;
    });
  }

  /** Settles the requests of a caller, in the order in which they came. @param at where its answer begins */
  #settle({ id, windows, requests }: Question, taken: readonly Count[], answer: readonly number[], at: number): void {
    const nowMs = answer[0]!;
    const admittedCount = answer[at]!;
    const totals = windows.map((_window, i) => ({ used: answer[at + 1 + 2 * i]!, resetAtMs: answer[at + 2 + 2 * i]! }));
    // A window without a request has not begun, and a look must not begin it.
    const begun = totals.map(({ used, resetAtMs }) => ({ used, resetAtMs: used === 0 ? 0 : resetAtMs }));
    this.#options.memory.update(id, windows, begun, taken);
    let charged = 0;
    for (const { cost, resolve } of requests) {
      charged += cost;
      const following = Math.max(0, admittedCount - charged);
      const decision: Decision = {
        admitted: cost === 0 || charged <= admittedCount,
        windows: windows.map(({ name, seconds, limit }, i) => {
          const { used, resetAtMs } = totals[i]!;
          const usedByNow = used - following;
          return { name, seconds, limit, used: usedByNow, remaining: Math.max(0, limit - usedByNow), resetAtMs };
        }),
        nowMs,
      };
      if (!decision.admitted) this.#refusals.set(id, { decision, receivedAtMs: this.#elapsedMs() });
      resolve(decision);
    }
  }
}

/**
 * One question for each caller, in the order of arrival. A caller whose plan has just changed may ask by different
 * windows at once, and then has a question for each of them.
 */
function groupByCaller(requests: readonly Waiting[]): Question[] {
  const questions: Question[] = [];
  const latest = new Map<string, Question>();
  for (const request of requests) {
    const { id, windows } = request;
    let question = latest.get(id);
    if (question?.windows !== windows) {
      question = { id, windows, requests: [] };
      latest.set(id, question);
      questions.push(question);
    }
    question.requests.push(request);
  }
  return questions;
}

/** The windows at a later time without another request: one that has ended is as good as new. */
function windowsAt(windows: readonly WindowState[], nowMs: number): WindowState[] {
  return windows.map((state) =>
    state.resetAtMs > nowMs
      ? state
      : { ...state, used: 0, remaining: state.limit, resetAtMs: nowMs + state.seconds * 1_000 },
  );
}

/** Adds what the script takes for one caller. */
function pushArguments(target: (string | number)[], { windows, requests }: Question, counts: readonly Count[]): void {
  target.push(requests.reduce((charges, { cost }) => charges + cost, 0));
  windows.forEach(({ limit, seconds }, i) => {
    const count = counts[i];
    target.push(limit, seconds * 1_000, count?.used ?? 0, count?.resetAtMs ?? 0, count?.unsent ?? 0);
  });
}
