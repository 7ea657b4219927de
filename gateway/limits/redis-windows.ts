import calculateSlot from "cluster-key-slot";
import type { Cluster, Redis } from "ioredis";
import { LRUCache } from "lru-cache";
import { RateLimiterRedis } from "rate-limiter-flexible";
import type { Breaker } from "./breaker.ts";
import { type MemoryWindows, type WindowsRequest, WindowsRes } from "./memory-windows.ts";
import { decideScript } from "./redis-script.ts";
import type { Count, Decision, Window } from "./windows.ts";

/** Commands that ioredis adds by `defineCommand`. */
type Client = (Redis | Cluster) & {
  decideWindows(keyCount: number, ...keysAndArguments: (string | number)[]): Promise<number[]>;
};

export interface RedisWindowsOptions {
  readonly redis: Redis | Cluster;
  /** Decides while Redis is away, and remembers what Redis said of each caller. */
  readonly memory: MemoryWindows;
  readonly breaker: Breaker;
  /** Milliseconds to add to the clock of Redis; for tests. */
  readonly clockOffsetMs?: () => number;
}

interface Pending {
  readonly key: string;
  readonly windows: readonly Window[];
  readonly resolve: (decision: Decision) => void;
  readonly reject: (error: unknown) => void;
}

interface Refusal {
  readonly decision: Decision;
  /** When it was heard, by a clock that only goes forward. */
  readonly heardAtMs: number;
}

/** Requests in one call of the script: Redis does nothing else while it runs. */
const maxBatch = 200;

const keyPrefix = "petstore:limits:";

/**
 * All windows of a caller on Redis, for all replicas together, in one round trip: the decisions that wait share a
 * call. A caller that was refused is answered from memory until its window ends.
 *
 * When Redis fails, or the breaker is open, `memory` decides: it is the insurance limiter.
 */
export class RedisWindows extends RateLimiterRedis {
  readonly #options: RedisWindowsOptions;
  readonly #client: Client;
  readonly #refusals = new LRUCache<string, Refusal>({ max: 100_000 });
  #waiting: Pending[] = [];
  #running: Promise<void> | undefined;

  constructor(options: RedisWindowsOptions) {
    super({ storeClient: options.redis, points: 1, duration: 1, insuranceLimiter: options.memory });
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

  /** The refusal that still holds for a caller, as it stands now. */
  #remembered(key: string, windows: readonly Window[]): Decision | undefined {
    const refusal = this.#refusals.get(key);
    if (!refusal) return undefined;
    const nowMs = refusal.decision.nowMs + performance.now() - refusal.heardAtMs;
    const holds = refusal.decision.windows.every(
      ({ limit, remaining, resetAtMs }, i) => windows[i]?.limit === limit && (remaining > 0 || resetAtMs > nowMs),
    );
    if (holds) return { ...refusal.decision, nowMs };
    this.#refusals.delete(key);
    return undefined;
  }

  #ask(key: string, windows: readonly Window[]): Promise<Decision> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key, windows, resolve, reject });
      this.#running ??= this.#run();
    });
  }

  /** One call at a time takes everything that waits: the busier it is, the fewer calls a request costs. */
  async #run(): Promise<void> {
    await new Promise(setImmediate); // what arrived in this turn of the event loop joins the first call
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, maxBatch);
      await Promise.all(this.#groups(batch).map((group) => this.#decide(group)));
    }
    this.#running = undefined;
  }

  /** In a cluster one call can only reach the keys of one slot. */
  #groups(pending: Pending[]): Pending[][] {
    if (!this.#client.isCluster) return [pending];
    return Object.values(Object.groupBy(pending, ({ key }) => calculateSlot(keyPrefix + key))) as Pending[][];
  }

  async #decide(batch: readonly Pending[]): Promise<void> {
    const { memory, breaker, clockOffsetMs } = this.#options;
    const handed = batch.map(({ key }) => memory.handOver(key));
    try {
      const call = () =>
        this.#client.decideWindows(
          batch.length,
          ...batch.map(({ key }) => keyPrefix + key),
          clockOffsetMs?.() ?? 0,
          batch[0]!.windows.length,
          ...batch.flatMap(({ windows }, i) => toArguments(windows, handed[i])),
        );
      const answer = await breaker.run(call);
      let at = 1;
      for (const { key, windows, resolve } of batch) {
        const { decision, heard } = fromAnswer(answer, at, windows);
        at += 1 + 2 * windows.length;
        memory.learn(key, heard);
        if (!decision.admitted) this.#refusals.set(key, { decision, heardAtMs: performance.now() });
        resolve(decision);
      }
    } catch (error) {
      batch.forEach(({ key, reject }, i) => {
        if (handed[i]) memory.takeBack(key, handed[i]);
        reject(error);
      });
    }
  }
}

function toArguments(windows: readonly Window[], counts: readonly Count[] | undefined): number[] {
  return windows.flatMap(({ limit, seconds }, i) => {
    const { used, resetAtMs, away } = counts?.[i] ?? { used: 0, resetAtMs: 0, away: 0 };
    return [limit, seconds * 1_000, used, resetAtMs, away];
  });
}

/** Reads one request's part of an answer of the script. */
function fromAnswer(answer: readonly number[], at: number, windows: readonly Window[]) {
  const heard = windows.map((_window, i) => ({ used: answer[at + 1 + 2 * i]!, resetAtMs: answer[at + 2 + 2 * i]! }));
  const decision: Decision = {
    admitted: answer[at] === 1,
    windows: windows.map((window, i) => ({
      ...window,
      remaining: Math.max(0, window.limit - heard[i]!.used),
      resetAtMs: heard[i]!.resetAtMs,
    })),
    nowMs: answer[0]!,
  };
  return { decision, heard };
}
