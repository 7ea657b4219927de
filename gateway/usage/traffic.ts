import type { Knex } from "knex";
import { retried } from "../../runtime/database/open.ts";
import type { DbInteger } from "../auth/rows.ts";
import { writeInOrder } from "./write-in-order.ts";

/** The requests of an account in one minute, by the clock of the gateways. */
export interface AccountMinute {
  readonly accountId: string;
  /** Unix milliseconds; a multiple of 60,000. */
  readonly minuteStartMs: number;
  readonly requests: number;
}

/** How much each account asks for, minute by minute: what it was refused counts too. */
export interface TrafficStore {
  /** Adds to what all gateways have added, all of it or, when it throws, nothing. */
  add(minutes: readonly AccountMinute[]): Promise<void>;
  /** Forgets the minutes that began before then, in Unix milliseconds. */
  forgetBefore(ms: number): Promise<void>;
}

const minuteMs = 60_000;

/** Minutes whose counts wait to be written; older ones are lost when the database is away for longer. */
const maxWaitingMinutes = 60;

/** Gathers counts in memory, bounded by the number of accounts. */
export class TrafficCounter {
  readonly #minutes = new Map<number, Map<string, number>>();
  #startMs = Number.NaN;
  #counts = new Map<string, number>();

  /** @param nowMs Unix milliseconds */
  count(accountId: string, nowMs: number): void {
    const isSameMinute = nowMs >= this.#startMs && nowMs < this.#startMs + minuteMs;
    if (!isSameMinute) this.#enter(nowMs - (nowMs % minuteMs));
    this.#counts.set(accountId, (this.#counts.get(accountId) ?? 0) + 1);
  }

  /** Hands over all counts and begins anew. */
  take(): AccountMinute[] {
    const taken = [...this.#minutes].flatMap(([minuteStartMs, counts]) =>
      [...counts].map(([accountId, requests]) => ({ accountId, minuteStartMs, requests })),
    );
    this.#minutes.clear();
    this.#startMs = Number.NaN;
    return taken;
  }

  /** Takes back what was taken and could not be written. */
  putBack(minutes: readonly AccountMinute[]): void {
    for (const { accountId, minuteStartMs, requests } of minutes) {
      this.#enter(minuteStartMs);
      this.#counts.set(accountId, (this.#counts.get(accountId) ?? 0) + requests);
    }
  }

  #enter(startMs: number): void {
    this.#startMs = startMs;
    this.#counts = this.#minutes.get(startMs) ?? new Map();
    this.#minutes.set(startMs, this.#counts);
    if (this.#minutes.size > maxWaitingMinutes) this.#minutes.delete(Math.min(...this.#minutes.keys()));
  }
}

/** @param db migrated with `keyMigrations` */
export function createTrafficStore(db: Knex): TrafficStore {
  return {
    async add(minutes) {
      await writeInOrder(
        db,
        minutes,
        ({ accountId, minuteStartMs }) => `${accountId} ${minuteStartMs}`,
        (trx, { accountId, minuteStartMs, requests }) =>
          trx("account_minutes")
            .insert({ account_id: accountId, minute_start: minuteStartMs, requests })
            .onConflict(["account_id", "minute_start"])
            .merge({ requests: trx.raw("account_minutes.requests + ?", [requests]) }),
      );
    },

    async forgetBefore(ms) {
      await retried(db, () => db("account_minutes").where("minute_start", "<", ms).delete());
    },
  };
}

/** All minutes of an account in which it sent something, in their order. */
export async function readMinutes(db: Knex, accountId: string): Promise<AccountMinute[]> {
  const rows: MinuteRow[] = await db("account_minutes")
    .where("account_id", accountId)
    .orderBy("minute_start")
    .select("minute_start", "requests");
  return rows.map((row) => ({
    accountId,
    minuteStartMs: Number(row.minute_start),
    requests: Number(row.requests),
  }));
}

interface MinuteRow {
  minute_start: DbInteger;
  requests: DbInteger;
}
