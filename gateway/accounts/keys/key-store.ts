/** Keys and bans in the database, as a running gateway needs them. */
import type { Knex } from "knex";
import { readCurrent, type ServerRow, serverColumns } from "../../../runtime/database/old-primary.ts";
import { clockMsSql, retried } from "../../../runtime/database/statements.ts";
import { type DbInteger, firstOfFamily, type PlanRow, toNumber, toPlan, toScopes } from "./key-rows.ts";
import type { Principal } from "./principal.ts";

/** What the gateway reads and writes of keys while it serves. What operators do is in `accounts/cli/key-admin.ts`. */
export interface KeyStore {
  /** Checks that keys can be looked up. @throws the error of the database */
  ping(): Promise<void>;
  /**
   * Finds the account and the rights of a key.
   *
   * The first look-up of a key that a rotation made marks it as used, because from then on a rotation of its
   * predecessor must not replace it.
   *
   * @param keyHash from `hashKey`
   * @returns null for a revoked key, which never works again; undefined for one that is unknown or, by the clock of the
   *   database, expired
   * @throws UnusablePlanError, or the error of the database
   */
  findByHash(keyHash: Buffer): Promise<FoundKey | null | undefined>;
  /** Counts the working keys of each pepper, by the pepper's fingerprint. */
  keysByPepper(): Promise<ReadonlyMap<string, number>>;
  /** The latest ban of a family of keys, running or over; undefined without one, or when an operator lifted it. */
  lastBan(familyId: string): Promise<Ban | undefined>;
  /** Bans a family of keys. Of several bans the one that ends last holds, so each gateway may report its own. */
  ban(familyId: string, ban: Ban): Promise<void>;
}

export interface FoundKey extends Principal {
  /** How long it still works, by the clock of the database: those of gateways may differ. `Infinity` without an end. */
  readonly endsInMs: number;
}

export interface Ban {
  /** Unix milliseconds at which it ends. */
  readonly untilMs: number;
  /** Place on the ladder, from 1. */
  readonly step: number;
  /** Unix milliseconds at which it began. */
  readonly atMs: number;
}

/** @param db migrated with `gatewayMigrations` */
export function createKeyStore(db: Knex): KeyStore {
  const clockMs = () => db.raw(clockMsSql(db));

  /** @returns false when the key has been used or revoked since it was read */
  async function markUsed(keyId: string): Promise<boolean> {
    const unused = () => db("api_keys").where("id", keyId).whereNull("last_used_at").whereNull("revoked_at");
    return (await retried(() => unused().update({ last_used_at: clockMs() }))) > 0;
  }

  const store: KeyStore = {
    async ping() {
      await store.findByHash(Buffer.alloc(0));
    },

    async findByHash(keyHash) {
      // Selects from one row of constants, so that the answer has a row even without such a key: `readCurrent` reads
      // from that row which server has answered.
      const query = db
        .from(db.raw("(select 1 as one) as one"))
        .leftJoin("api_keys as k", (on) => void on.on("k.key_hash", "=", db.raw("?", [keyHash])))
        .leftJoin("api_keys as f", "f.id", firstOfFamily(db))
        .leftJoin("accounts as a", "a.id", "k.account_id")
        .select(serverColumns(db))
        .select("k.id", "k.line", "k.account_id", "k.scopes", "k.expires_at", "k.revoked_at", "k.last_used_at")
        .select("f.banned_until", db.raw(`${clockMsSql(db)} as now_ms`))
        .select("a.plan", "a.per_minute", "a.per_day");
      const [row] = await readCurrent<PrincipalRow & ServerRow>(db, () => query.clone());
      if (!row?.id) return undefined;
      if (row.revoked_at !== null) return null;
      const expiresAtMs = toNumber(row.expires_at);
      const endsInMs = (expiresAtMs ?? Number.POSITIVE_INFINITY) - Number(row.now_ms);
      if (endsInMs <= 0) return undefined;
      const isFirstUse = row.line !== null && row.last_used_at === null;
      // If it marks nothing, another gateway was first, or the key was replaced or revoked: look it up again.
      if (isFirstUse && !(await markUsed(row.id))) return await store.findByHash(keyHash);
      return {
        keyId: row.id,
        familyId: row.line ?? row.id,
        accountId: row.account_id,
        ...toPlan(row),
        scopes: new Set(toScopes(row.scopes)),
        expiresAtMs,
        endsInMs,
        bannedUntilMs: Number(row.banned_until),
      };
    },

    async keysByPepper() {
      const rows: { pepper: string; count: number | bigint }[] = await db("api_keys")
        .whereNotNull("pepper")
        .whereNull("revoked_at")
        .where((valid) => valid.whereNull("expires_at").orWhere("expires_at", ">", clockMs()))
        .groupBy("pepper")
        .select("pepper")
        .count({ count: "*" });
      return new Map(rows.map(({ pepper, count }) => [pepper, Number(count)]));
    },

    async lastBan(familyId) {
      const row: BanRow | undefined = await db("api_keys")
        .where("id", familyId)
        .whereNotNull("banned_at")
        .first("banned_until", "ban_step", "banned_at");
      return row && { untilMs: Number(row.banned_until), step: Number(row.ban_step), atMs: Number(row.banned_at) };
    },

    async ban(familyId, { untilMs, step, atMs }) {
      await retried(() =>
        db("api_keys")
          .where("id", familyId)
          .where("banned_until", "<", untilMs)
          .update({ banned_until: untilMs, ban_step: step, banned_at: atMs }),
      );
    },
  };
  return store;
}

interface PrincipalRow extends PlanRow {
  id: string;
  line: string | null;
  account_id: string;
  scopes: string;
  expires_at: DbInteger | null;
  revoked_at: DbInteger | null;
  last_used_at: DbInteger | null;
  banned_until: DbInteger;
  now_ms: DbInteger;
}

interface BanRow {
  banned_until: DbInteger;
  ban_step: DbInteger;
  banned_at: DbInteger;
}
