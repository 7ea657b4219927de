/** Counts the requests of accounts in the memory of this process. */
import { randomBytes } from "node:crypto";
import { type Count, indexAt, learn, leftOf, lengthsMs, phaseOf, renew } from "./rule.ts";
import type { Decision, Limiter, Window, WindowState } from "./windows.ts";

export interface MemoryWindowsOptions {
  /** Accounts that are remembered; beyond it the one that came first is forgotten. */
  readonly maxAccounts: number;
  /** Gateways that share the limits. */
  readonly gateways: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** The counter of one account at this gateway. */
export interface Counter {
  readonly id: string;
  /** Its name on Redis. A counter that was forgotten and begins again has another one, as its counts begin at 0. */
  readonly name: string;
  readonly phaseMs: number;
  /** For each window. */
  readonly counts: readonly Count[];
}

const none: Readonly<Count> = { index: 0, own: 0, synced: 0, heard: 0 };

/** What this gateway has admitted of each account, and what it has heard of the others. Alone it admits its share. */
export class MemoryWindows implements Limiter {
  readonly #options: MemoryWindowsOptions;
  readonly #counters = new Map<string, Counter>();
  readonly #name = randomBytes(6).toString("base64url");
  #made = 0;
  #offsetMs = 0;
  /** Decisions without Redis so far. */
  decided = 0;

  constructor(options: MemoryWindowsOptions) {
    this.#options = options;
  }

  decide(id: string, windows: readonly Window[]): Decision {
    return this.decideAlone(this.counterOf(id), windows);
  }

  look(id: string, windows: readonly Window[]): Decision {
    return this.currentLimits(id, windows);
  }

  currentLimits(id: string, windows: readonly Window[]): Decision {
    return this.current(this.counterOf(id), windows);
  }

  counterOf(id: string): Counter {
    const kept = this.#counters.get(id);
    if (kept) return kept;
    if (this.#counters.size >= this.#options.maxAccounts) this.#counters.delete(this.#counters.keys().next().value!);
    this.#made += 1;
    const name = `${this.#name}${this.#made.toString(36)}`;
    const counter = { id, name, phaseMs: phaseOf(id), counts: lengthsMs.map(() => ({ ...none })) };
    this.#counters.set(id, counter);
    return counter;
  }

  /** Decides about a request by the share of this gateway. */
  decideAlone(counter: Counter, windows: readonly Window[]): Decision {
    this.decided += 1;
    const nowMs = this.nowMs();
    const { gateways } = this.#options;
    const admitted = !isSpent(counter, windows, nowMs, gateways);
    if (admitted) {
      for (let w = 0; w < windows.length; w++) {
        const count = counter.counts[w]!;
        renew(count, indexAt(nowMs, counter.phaseMs, lengthsMs[w]!));
        count.own += 1;
      }
    }
    return decisionOf(counter, windows, { nowMs, admitted, gateways });
  }

  /** The windows as this gateway knows them. @param gateways those that share what is left: 1 while Redis is there */
  current(counter: Counter, windows: readonly Window[], gateways = this.#options.gateways): Decision {
    const nowMs = this.nowMs();
    const admitted = !isSpent(counter, windows, nowMs, gateways);
    return decisionOf(counter, windows, { nowMs, admitted, gateways });
  }

  /** Whether all gateways together have nothing left, as far as this one has heard. It holds until the window ends. */
  isSpent(counter: Counter, windows: readonly Window[]): boolean {
    return isSpent(counter, windows, this.nowMs(), 1);
  }

  /**
   * Notes an answer of Redis about an account.
   *
   * @param nowMs the time of Redis
   * @param answer total and charged for each window, from `at` on
   */
  learn(counter: Counter, nowMs: number, admitted: number, answer: readonly number[], at: number): void {
    for (let w = 0; w < lengthsMs.length; w++) {
      const index = indexAt(nowMs, counter.phaseMs, lengthsMs[w]!);
      learn(counter.counts[w]!, index, admitted, answer[at + 2 * w]!, answer[at + 2 * w + 1]!);
    }
  }

  /** The counters that know something of the running day, one at a time: there may be very many. */
  *running(): Generator<Counter> {
    for (const counter of this.#counters.values()) {
      const { index, own, heard } = counter.counts.at(-1)!;
      if (own + heard > 0 && index === indexAt(this.nowMs(), counter.phaseMs, lengthsMs.at(-1)!)) yield counter;
    }
  }

  /**
   * The windows go by the clock of Redis from now on. Its time is compared with that of the call, not with that of the
   * answer: a window that has ended for Redis must not run on here.
   *
   * @param redisNowMs the time in the answer
   * @param sentAtMs `ownNowMs` when the call was sent
   */
  followClock(redisNowMs: number, sentAtMs: number): void {
    this.#offsetMs = redisNowMs - sentAtMs;
  }

  /** Unix milliseconds by this machine's clock. */
  ownNowMs(): number {
    return this.#options.now();
  }

  /** Unix milliseconds by the clock of Redis, or by this machine's while Redis has never answered. */
  nowMs(): number {
    return this.#options.now() + this.#offsetMs;
  }
}

function isSpent({ counts, phaseMs }: Counter, windows: readonly Window[], nowMs: number, gateways: number): boolean {
  for (let w = 0; w < windows.length; w++) {
    const isRunning = counts[w]!.index === indexAt(nowMs, phaseMs, lengthsMs[w]!);
    if (leftOf(isRunning ? counts[w]! : none, windows[w]!.limit, gateways) <= 0) return true;
  }
  return false;
}

interface Outcome {
  readonly nowMs: number;
  readonly admitted: boolean;
  /** Gateways that share what is left. */
  readonly gateways: number;
  /** Requests of the same answer that were charged after this one. */
  readonly following?: number;
}

/** The decision about a request, with the windows of its account after it. */
export function decisionOf({ counts, phaseMs }: Counter, windows: readonly Window[], outcome: Outcome): Decision {
  const { nowMs, admitted, gateways, following = 0 } = outcome;
  const states: WindowState[] = [];
  for (let w = 0; w < windows.length; w++) {
    const { name, seconds, limit } = windows[w]!;
    const index = indexAt(nowMs, phaseMs, lengthsMs[w]!);
    const count = counts[w]!.index === index ? counts[w]! : none;
    states.push({
      name,
      seconds,
      limit,
      used: count.heard + count.own - count.synced - following,
      remaining: Math.max(0, leftOf(count, limit, gateways) + following),
      resetAtMs: (index + 1) * lengthsMs[w]! - phaseMs,
    });
  }
  return { admitted, windows: states, nowMs };
}
