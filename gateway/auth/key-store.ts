import type { Knex } from "knex";
import { retried } from "../../runtime/database/open.ts";
import { writeInOrder } from "../usage/write-in-order.ts";
import type { Principal } from "./principal.ts";
import { type DbInteger, type PlanRow, toNumber, toPlan, toScopes } from "./rows.ts";

export interface Ban {
  /** Unix milliseconds at which it ends. */
  readonly untilMs: number;
  /** Place on the ladder, from 1. */
  readonly step: number;
  /** Unix milliseconds at which it began. */
  readonly atMs: number;
}

export interface KeyUse {
  readonly keyId: string;
  /** Unix milliseconds. */
  readonly atMs: number;
}

export interface DeprecatedUse {
  readonly accountId: string;
  readonly requests: number;
  /** Unix milliseconds of any moment of the day, in UTC, under which they count. */
  readonly atMs: number;
}

/** What the gateway asks and notes about keys while it serves. Operators' work is in `key-admin.ts`. */
export interface KeyStore {
  /** Resolves when keys can be looked up. */
  ping(): Promise<void>;
  /**
   * Who a key stands for; undefined for one that is unknown, revoked or expired.
   *
   * @param keyHash from `hashKey`
   */
  findByHash(keyHash: Buffer): Promise<Principal | undefined>;
  /** The last ban of a key, running or over; undefined when it had none since an operator last lifted one. */
  lastBan(keyId: string): Promise<Ban | undefined>;
  /** Bans a key. Of several bans the one that ends last holds, so replicas may all report theirs. */
  ban(keyId: string, ban: Ban): Promise<void>;
  /** Notes when keys were last used; an older time than the noted one changes nothing. */
  touch(uses: readonly KeyUse[]): Promise<void>;
  /** Adds to the counts of use of deprecated routes, all of them or, when it throws, none. */
  countDeprecatedUse(uses: readonly DeprecatedUse[]): Promise<void>;
}

/** Rows per transaction when keys are touched: on SQLite everything else waits while one is open. */
const touchBatch = 100;

/**
 * @param db migrated with `keyMigrations`
 * @param now Unix milliseconds
 */
export function createKeyStore(db: Knex, now: () => number): KeyStore {
  return {
    async ping() {
      await db("api_keys").first("id");
    },

    async findByHash(keyHash) {
      const row: PrincipalRow | undefined = await db("api_keys as k")
        .join("accounts as a", "a.id", "k.account_id")
        .where("k.key_hash", keyHash)
        .first("k.id", "k.account_id", "k.scopes", "k.expires_at", "k.revoked_at", "k.banned_until")
        .select("a.plan", "a.per_minute", "a.per_day");
      if (row === undefined || row.revoked_at !== null) return undefined;
      const expiresAtMs = toNumber(row.expires_at);
      if (expiresAtMs !== null && expiresAtMs <= now()) return undefined;
      return {
        keyId: row.id,
        accountId: row.account_id,
        ...toPlan(row),
        scopes: new Set(toScopes(row.scopes)),
        expiresAtMs,
        bannedUntilMs: Number(row.banned_until),
      };
    },

    async lastBan(keyId) {
      const row: BanRow | undefined = await db("api_keys")
        .where("id", keyId)
        .whereNotNull("banned_at")
        .first("banned_until", "ban_step", "banned_at");
      return row && { untilMs: Number(row.banned_until), step: Number(row.ban_step), atMs: Number(row.banned_at) };
    },

    async ban(keyId, { untilMs, step, atMs }) {
      await retried(db, () =>
        db("api_keys")
          .where("id", keyId)
          .where("banned_until", "<", untilMs)
          .update({ banned_until: untilMs, ban_step: step, banned_at: atMs }),
      );
    },

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
        ({ accountId, atMs }) => `${accountId} ${utcDay(atMs)}`,
        (trx, { accountId, requests, atMs }) =>
          trx("deprecated_use")
            .insert({ account_id: accountId, day: utcDay(atMs), requests })
            .onConflict(["account_id", "day"])
            .merge({ requests: trx.raw("deprecated_use.requests + ?", [requests]) }),
      );
    },
  };
}

interface PrincipalRow extends PlanRow {
  id: string;
  account_id: string;
  scopes: string;
  expires_at: DbInteger | null;
  revoked_at: DbInteger | null;
  banned_until: DbInteger;
}

interface BanRow {
  banned_until: DbInteger;
  ban_step: DbInteger;
  banned_at: DbInteger;
}

/** As `2026-01-31`. */
function utcDay(atMs: number): string {
  return new Date(atMs).toISOString().slice(0, 10);
}
