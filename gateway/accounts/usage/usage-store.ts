/** The use of keys and accounts in the database. */
import type { Knex } from "knex";
import { retried, retriedIfUndone } from "../../../runtime/database/statements.ts";

/** Where the use of keys and accounts is written. All gateways write to the same rows. */
export interface UsageStore {
  /** Notes when keys were last used; a time before the noted one changes nothing. */
  touch(uses: readonly KeyUse[]): Promise<void>;
  /** Adds to the counts of use of deprecated operations in one transaction. When it throws, all or none were added. */
  countDeprecatedUse(uses: readonly DeprecatedUse[]): Promise<void>;
  /** Adds to the counts of requests by minute in one transaction. When it throws, all or none were added. */
  addMinutes(minutes: readonly AccountMinute[]): Promise<void>;
  /** Deletes the minutes that began before then, in Unix milliseconds. */
  forgetMinutesBefore(beforeMs: number): Promise<void>;
  /** Sums up the minutes of an account by steps. @throws the error of the database */
  readSteps(range: UseRange): Promise<UseStep[]>;
  /** The deprecated requests of an account, the sum of whole days. @throws the error of the database */
  readDeprecatedUse(range: Pick<UseRange, "accountId" | "fromMs">): Promise<number>;
}

export interface UseRange {
  readonly accountId: string;
  /** Unix milliseconds; a multiple of `stepMs`. */
  readonly fromMs: number;
  /** A multiple of a minute. */
  readonly stepMs: number;
}

/** The requests of an account in one step of time. */
export interface UseStep {
  /** Unix milliseconds. */
  readonly stepStartMs: number;
  /** Refused ones included. */
  readonly requests: number;
  readonly refused: number;
}

interface KeyUse {
  readonly keyId: string;
  /** Unix milliseconds. */
  readonly atMs: number;
}

/** The requests of an account to a deprecated operation on one day. */
export interface DeprecatedUse {
  readonly accountId: string;
  /** OpenAPI operationId, as `getPet`. */
  readonly operation: string;
  readonly requests: number;
  /** Unix milliseconds of any moment of the day, in UTC. */
  readonly atMs: number;
}

/** The charged and refused requests of an account in one minute. */
export interface AccountMinute {
  readonly accountId: string;
  /** Unix milliseconds; a multiple of 60,000. */
  readonly minuteStartMs: number;
  /** Refused ones included. */
  readonly requests: number;
  /** Those that a spent window or a ban refused. */
  readonly refused: number;
}

/** Keys in one transaction: on SQLite everything else waits while one is open. */
const touchBatch = 100;

/** @param db migrated with `gatewayMigrations` */
export function createUsageStore(db: Knex): UsageStore {
  return {
    async touch(uses) {
      for (let start = 0; start < uses.length; start += touchBatch) {
        await writeInOrder(
          db,
          uses.slice(start, start + touchBatch),
          ({ keyId }) => keyId,
          (trx, { keyId, atMs }) =>
            trx("api_keys")
              .where("id", keyId)
              .where((older) => older.whereNull("last_used_at").orWhere("last_used_at", "<", atMs))
              .update({ last_used_at: atMs }),
        );
      }
    },

    async countDeprecatedUse(uses) {
      await writeInOrder(
        db,
        uses,
        ({ accountId, operation, atMs }) => `${accountId} ${operation} ${utcDay(atMs)}`,
        (trx, { accountId, operation, requests, atMs }) =>
          trx("deprecated_use")
            .insert({ account_id: accountId, operation, day: utcDay(atMs), requests })
            .onConflict(["account_id", "operation", "day"])
            .merge({ requests: trx.raw("deprecated_use.requests + ?", [requests]) }),
      );
    },

    async addMinutes(minutes) {
      await writeInOrder(
        db,
        minutes,
        ({ accountId, minuteStartMs }) => `${accountId} ${minuteStartMs}`,
        (trx, { accountId, minuteStartMs, requests, refused }) =>
          trx("account_minutes")
            .insert({ account_id: accountId, minute_start: minuteStartMs, requests, refused })
            .onConflict(["account_id", "minute_start"])
            .merge({
              requests: trx.raw("account_minutes.requests + ?", [requests]),
              refused: trx.raw("account_minutes.refused + ?", [refused]),
            }),
      );
    },

    async forgetMinutesBefore(beforeMs) {
      await retried(() => db("account_minutes").where("minute_start", "<", beforeMs).delete());
    },

    async readSteps({ accountId, fromMs, stepMs }) {
      const rows: StepRow[] = await db("account_minutes")
        .where({ account_id: accountId })
        .where("minute_start", ">=", fromMs)
        .groupBy("step_start")
        .select(db.raw("minute_start - minute_start % ? as step_start", [stepMs]))
        .sum({ requests: "requests", refused: "refused" });
      return rows.map(({ step_start, requests, refused }) => ({
        stepStartMs: Number(step_start),
        requests: Number(requests),
        refused: Number(refused),
      }));
    },

    async readDeprecatedUse({ accountId, fromMs }) {
      const [row] = await db("deprecated_use")
        .where({ account_id: accountId })
        .where("day", ">=", utcDay(fromMs))
        .sum({ requests: "requests" });
      return Number(row?.requests ?? 0);
    },
  };
}

/** MySQL returns a sum as text. */
type Sum = number | bigint | string;

interface StepRow {
  step_start: number | bigint | string;
  requests: Sum;
  refused: Sum;
}

/**
 * Writes all items in one transaction. Gateways that write the same rows do so in the same order, so they wait for each
 * other and never deadlock.
 *
 * @param keyOf gives the name of the row that an item is written to
 */
async function writeInOrder<T>(
  db: Knex,
  items: readonly T[],
  keyOf: (item: T) => string,
  write: (trx: Knex.Transaction, item: T) => PromiseLike<unknown>,
): Promise<void> {
  if (items.length === 0) return;
  const ordered = items.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
  await retriedIfUndone(() =>
    db.transaction(async (trx) => {
      for (const item of ordered) await write(trx, item);
    }),
  );
}

/** As `2026-01-31`. */
function utcDay(atMs: number): string {
  return new Date(atMs).toISOString().slice(0, 10);
}
