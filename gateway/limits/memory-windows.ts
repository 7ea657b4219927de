/** Counts the requests of accounts in the memory of this process. */
import { randomBytes } from "node:crypto";
import { type ChargeAnswer, type Count, indexAt, learn, leftOf, lengthsMs, phaseMsOf, renew } from "./limit-rule.ts";
import type { Decision, Limiter, Window, WindowState, WindowsNow } from "./windows.ts";

export interface MemoryWindowsOptions {
  /**
   * Accounts that are remembered, at 300 bytes each; with more, the one with the oldest count of a day is forgotten.
   */
  readonly maxAccounts: number;
  /** Gateways that share the limits. */
  readonly gatewayCount: number;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** Milliseconds since some moment, by a clock that is never set; that of `performance` if not given. */
  readonly elapsedMs?: () => number;
}

/** What this gateway counts of one account. There may be very many, so it is small. */
export interface AccountCounts {
  readonly id: string;
  /** The serial number of these counts at this gateway. An account that was forgotten and comes back gets a new one. */
  readonly number: number;
  readonly phaseMs: number;
  readonly minute: Count;
  readonly day: Count;
}

/** The count of a window by its place in `lengthsMs`. */
export function countIn(counts: AccountCounts, w: number): Count {
  return w === 0 ? counts.minute : counts.day;
}

const none: Readonly<Count> = { index: 0, own: 0, alone: 0, synced: 0, others: 0 };

/**
 * The counts of accounts in this process: what this gateway has admitted, and what it knows from Redis about the
 * others. Alone it admits its share.
 */
export class MemoryWindows implements Limiter {
  readonly #options: Required<MemoryWindowsOptions>;
  readonly #accounts = new Map<string, AccountCounts>();
  readonly #name = randomBytes(6).toString("base64url");
  #made = 0;
  /** The time of Redis when `elapsedMs` was 0; undefined while Redis has never answered. */
  #redisStartMs: number | undefined;
  /** Requests decided without Redis so far, also those that were refused. */
  decidedAlone = 0;

  constructor(options: MemoryWindowsOptions) {
    this.#options = { elapsedMs: () => performance.now(), ...options };
  }

  charge(id: string, windows: readonly Window[]): Decision {
    return this.chargeAlone(this.countsOf(id), windows);
  }

  readShared(id: string, windows: readonly Window[]): WindowsNow {
    return this.readLocal(id, windows);
  }

  readLocal(id: string, windows: readonly Window[]): WindowsNow {
    return this.read(this.countsOf(id), windows);
  }

  countsOf(id: string): AccountCounts {
    const kept = this.#accounts.get(id);
    if (kept) return kept;
    if (this.#accounts.size >= this.#options.maxAccounts) this.#accounts.delete(this.#accounts.keys().next().value!);
    this.#made += 1;
    const counts = { id, number: this.#made, phaseMs: phaseMsOf(id), minute: { ...none }, day: { ...none } };
    this.#accounts.set(id, counts);
    return counts;
  }

  /** The name of these counts on Redis, never used twice: new counts begin at 0, and Redis takes no falling ones. */
  nameOf({ number }: AccountCounts): string {
    return `${this.#name}${number.toString(36)}`;
  }

  /** Decides about a request by the share of this gateway. */
  chargeAlone(counts: AccountCounts, windows: readonly Window[]): Decision {
    this.decidedAlone += 1;
    const nowMs = this.nowMs();
    const { gatewayCount: sharers } = this.#options;
    const admitted = !this.isSpent(counts, windows, sharers, nowMs);
    if (admitted) {
      for (let w = 0; w < windows.length; w++) {
        const count = countIn(counts, w);
        const index = indexAt(nowMs, counts.phaseMs, lengthsMs[w]!);
        if (count.index !== index && w === windows.length - 1) this.#keepLonger(counts);
        renew(count, index);
        count.own += 1;
        count.alone += 1;
      }
    }
    return decisionOf(counts, windows, { nowMs, admitted, sharers });
  }

  /** The windows as this gateway knows them. @param sharers how many share what is left: 1 while Redis is there */
  read(
    counts: AccountCounts,
    windows: readonly Window[],
    sharers = this.#options.gatewayCount,
    nowMs = this.nowMs(),
  ): Decision {
    const admitted = !this.isSpent(counts, windows, sharers, nowMs);
    return decisionOf(counts, windows, { nowMs, admitted, sharers });
  }

  /** Whether one of these windows has nothing left. @param sharers how many share what is left */
  isSpent(counts: AccountCounts, windows: readonly Window[], sharers: number, nowMs = this.nowMs()): boolean {
    for (let w = 0; w < windows.length; w++) {
      const count = countIn(counts, w);
      const isRunning = count.index === indexAt(nowMs, counts.phaseMs, lengthsMs[w]!);
      if (leftOf(isRunning ? count : none, windows[w]!.limit, sharers) <= 0) return true;
    }
    return false;
  }

  /** Notes an answer of Redis about an account. @param nowMs the time of Redis */
  learn(counts: AccountCounts, nowMs: number, { admittedCount, charges }: ChargeAnswer): void {
    for (let w = 0; w < lengthsMs.length; w++) {
      const index = indexAt(nowMs, counts.phaseMs, lengthsMs[w]!);
      const count = countIn(counts, w);
      if (count.index !== index && w === lengthsMs.length - 1) this.#keepLonger(counts);
      learn(count, index, admittedCount, charges[w]!);
    }
  }

  /** Moves an account to the end of the order in which accounts are forgotten: its count of the day has just begun. */
  #keepLonger(counts: AccountCounts): void {
    if (this.#accounts.get(counts.id) !== counts) return; // it has been forgotten while Redis was asked
    this.#accounts.delete(counts.id);
    this.#accounts.set(counts.id, counts);
  }

  /** The counts that know something of the running day, one at a time: there may be very many. */
  *running(): Generator<AccountCounts> {
    for (const counts of this.#accounts.values()) {
      const { index, own, synced, others } = counts.day;
      if (own + synced + others > 0 && index === indexAt(this.nowMs(), counts.phaseMs, lengthsMs[1])) yield counts;
    }
  }

  /**
   * The windows go by the clock of Redis from now on. The time in its answer counts as that of the moment when the call
   * was sent, not when the answer came: a window that has ended for Redis must not run on here.
   *
   * @param redisNowMs the time in the answer
   * @param sentAtMs `elapsedMs` when the call was sent
   */
  followClock(redisNowMs: number, sentAtMs: number): void {
    this.#redisStartMs = redisNowMs - sentAtMs;
  }

  /** Milliseconds since some moment. Setting a clock does not change them, so it begins no window again. */
  elapsedMs(): number {
    return this.#options.elapsedMs();
  }

  /** Unix milliseconds by the clock of Redis, or by this machine's while Redis has never answered. */
  nowMs(): number {
    return this.#redisStartMs === undefined ? this.#options.now() : this.#redisStartMs + this.elapsedMs();
  }
}

interface DecisionInput {
  readonly nowMs: number;
  readonly admitted: boolean;
  /** Gateways that share what is left. */
  readonly sharers: number;
  /** Later requests that the same answer of Redis admits. */
  readonly following?: number;
}

/** The decision about a request, with the windows of its account after it. */
export function decisionOf(counts: AccountCounts, windows: readonly Window[], input: DecisionInput): Decision {
  const { nowMs, admitted, sharers, following = 0 } = input;
  const states: WindowState[] = [];
  for (let w = 0; w < windows.length; w++) {
    const { name, lengthSeconds, limit } = windows[w]!;
    const index = indexAt(nowMs, counts.phaseMs, lengthsMs[w]!);
    const kept = countIn(counts, w);
    const count = kept.index === index ? kept : none;
    states.push({
      name,
      lengthSeconds,
      limit,
      used: count.others + count.own - following,
      remaining: Math.max(0, leftOf(count, limit, sharers) + following),
      resetAtMs: (index + 1) * lengthsMs[w]! - counts.phaseMs,
    });
  }
  return { admitted, states, nowMs };
}
