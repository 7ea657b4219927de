import calculateSlot from "cluster-key-slot";
import type { Cluster, Redis } from "ioredis";
import { LRUCache } from "lru-cache";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { type MemoryWindows, type WindowsRequest, WindowsRes } from "../limits/memory-windows.ts";
import type { Count, Decision, Window, WindowState } from "../limits/windows.ts";
import type { Breaker } from "./breaker.ts";
import { decideScript } from "./script.ts";

/** Commands that ioredis adds by `defineCommand`. */
type Client = (Redis | Cluster) & {
  decideWindows(keyCount: number, ...keysAndArguments: readonly (string | number)[]): Promise<number[]>;
};

export interface RedisWindowsOptions {
  readonly redis: Redis | Cluster;
  /** Decides while Redis is away, and remembers what Redis said of each caller. */
  readonly memory: MemoryWindows;
  readonly breaker: Breaker;
  /** Milliseconds to add to the clock of Redis; for tests. */
  readonly clockOffsetMs?: () => number;
}

interface Waiter {
  readonly resolve: (decision: Decision) => void;
  readonly reject: (error: unknown) => void;
}

/** The requests of one caller that wait for a decision. */
interface Question {
  readonly key: string;
  readonly windows: readonly Window[];
  readonly waiters: Waiter[];
}

interface Refusal {
  readonly decision: Decision;
  /** When it was heard, by a clock that only goes forward. */
  readonly heardAtMs: number;
}

/** Callers in one call of the script: Redis does nothing else while it runs. */
const maxBatch = 200;

const keyPrefix = "petstore:limits:";

/**
 * All windows of a caller on Redis, for all replicas together, in one round trip: the decisions that wait share a
 * call. A caller that was refused is answered from memory until its window ends.
 *
 * When Redis fails, or the breaker is open, `memory` decides.
 */
export class RedisWindows extends RateLimiterRedis {
  readonly #options: RedisWindowsOptions;
  readonly #client: Client;
  readonly #refusals = new LRUCache<string, Refusal>({ max: 100_000 });
  #waiting = new Map<string, Question>();
  /** Questions that another one of the same caller has displaced. */
  #moved: Question[] = [];
  #running: Promise<void> | undefined;

  constructor(options: RedisWindowsOptions) {
    super({ storeClient: options.redis, points: 1, duration: 1 });
    this.#options = options;
    options.redis.defineCommand("decideWindows", { lua: decideScript });
    this.#client = options.redis as Client;
  }

  /** Resolves or, as rate-limiter-flexible does for a denial, rejects with a WindowsRes. */
  override async consume(key: string, points: number, request: WindowsRequest): Promise<WindowsRes> {
    let decision: Decision;
    try {
      decision = this.#remembered(key, request.windows) ?? (await this.#ask(key, request.windows));
    } catch {
      return await this.#options.memory.consume(key, points, request);
    }
    if (decision.admitted) return new WindowsRes(decision);
    throw new WindowsRes(decision);
  }

  /** A clock that only goes forward, and steps when that of Redis is stepped. */
  #elapsedMs(): number {
    return performance.now() + (this.#options.clockOffsetMs?.() ?? 0);
  }

  /** The refusal that still holds for a caller, as it stands now. */
  #remembered(key: string, windows: readonly Window[]): Decision | undefined {
    const refusal = this.#refusals.get(key);
    if (!refusal) return undefined;
    const nowMs = refusal.decision.nowMs + this.#elapsedMs() - refusal.heardAtMs;
    const holds = refusal.decision.windows.every(
      ({ limit, remaining, resetAtMs }, i) => windows[i]?.limit === limit && (remaining > 0 || resetAtMs > nowMs),
    );
    if (holds) return { ...refusal.decision, windows: windowsAt(refusal.decision.windows, nowMs), nowMs };
    this.#refusals.delete(key);
    return undefined;
  }

  #ask(key: string, windows: readonly Window[]): Promise<Decision> {
    return new Promise((resolve, reject) => {
      let question = this.#waiting.get(key);
      if (!question || question.windows !== windows) {
        // A caller whose plan has just changed may ask by two sets of windows at once: one of them comes first.
        if (question) this.#moved.push(question);
        question = { key, windows, waiters: [] };
        this.#waiting.set(key, question);
      }
      question.waiters.push({ resolve, reject });
      this.#running ??= this.#run();
    });
  }

  /** One call at a time takes everything that waits: the busier it is, the fewer calls a request costs. */
  async #run(): Promise<void> {
    await new Promise(setImmediate); // what arrived in this turn of the event loop joins the first call
    while (this.#waiting.size > 0) {
      const questions = [...this.#moved, ...this.#waiting.values()];
      this.#moved = [];
      this.#waiting = new Map();
      for (let i = 0; i < questions.length; i += maxBatch) {
        await Promise.all(this.#groups(questions.slice(i, i + maxBatch)).map((group) => this.#decide(group)));
      }
    }
    this.#running = undefined;
  }

  /** In a cluster one call can only reach the keys of one slot. */
  #groups(questions: Question[]): Question[][] {
    if (!this.#client.isCluster) return [questions];
    return Object.values(Object.groupBy(questions, ({ key }) => calculateSlot(keyPrefix + key))) as Question[][];
  }

  async #decide(questions: readonly Question[]): Promise<void> {
    const { memory, breaker, clockOffsetMs } = this.#options;
    const handed = questions.map(({ key }) => memory.handOver(key));
    const keysAndArguments: (string | number)[] = questions.map(({ key }) => keyPrefix + key);
    keysAndArguments.push(clockOffsetMs?.() ?? 0, questions[0]!.windows.length);
    questions.forEach((question, i) => {
      pushArguments(keysAndArguments, question, handed[i]);
    });
    let answer: readonly number[];
    try {
      const call = () => this.#client.decideWindows(questions.length, ...keysAndArguments);
      answer = await breaker.run(keyPrefix + questions[0]!.key, call);
    } catch (error) {
      questions.forEach(({ key, waiters }, i) => {
        if (handed[i]) memory.takeBack(key, handed[i]);
        for (const { reject } of waiters) reject(error);
      });
      return;
    }
    let at = 1;
    for (const question of questions) {
      this.#settle(question, answer, at);
      at += 1 + 2 * question.windows.length;
    }
  }

  /** Tells the requests of a caller what was decided, in the order in which they came. */
  #settle({ key, windows, waiters }: Question, answer: readonly number[], at: number): void {
    const nowMs = answer[0]!;
    const admittedCount = answer[at]!;
    const heard = windows.map((_window, i) => ({ used: answer[at + 1 + 2 * i]!, resetAtMs: answer[at + 2 + 2 * i]! }));
    this.#options.memory.learn(key, heard);
    waiters.forEach(({ resolve }, turn) => {
      const following = Math.max(0, admittedCount - turn - 1);
      const decision: Decision = {
        admitted: turn < admittedCount,
        windows: windows.map(({ name, seconds, limit }, i) => {
          const { used, resetAtMs } = heard[i]!;
          return { name, seconds, limit, remaining: Math.max(0, limit - used + following), resetAtMs };
        }),
        nowMs,
      };
      if (!decision.admitted) this.#refusals.set(key, { decision, heardAtMs: this.#elapsedMs() });
      resolve(decision);
    });
  }
}

/** How windows stand later without another request: one that is over has not begun anew. */
function windowsAt(windows: readonly WindowState[], nowMs: number): WindowState[] {
  return windows.map((state) =>
    state.resetAtMs > nowMs ? state : { ...state, remaining: state.limit, resetAtMs: nowMs + state.seconds * 1_000 },
  );
}

function pushArguments(
  target: (string | number)[],
  { windows, waiters }: Question,
  counts: readonly Count[] | undefined,
): void {
  target.push(waiters.length);
  windows.forEach(({ limit, seconds }, i) => {
    const count = counts?.[i];
    target.push(limit, seconds * 1_000, count?.used ?? 0, count?.resetAtMs ?? 0, count?.away ?? 0);
  });
}
