import { randomBytes } from "node:crypto";
import type { Knex } from "knex";
import { retried } from "../../runtime/database/open.ts";
import { type AccountLimits, scopes as allScopes, type PlanName, type Scope } from "../auth/principal.ts";
import { fromScopes } from "../auth/rows.ts";
import type { PlanTable } from "../limits/plans.ts";
import { type Account, changePlan, ensureAccount, getAccount } from "./account-store.ts";
import { type KeyRecord, readKey, readKeys } from "./key-records.ts";
import { KeyStoreError, unknownKey } from "./refusal.ts";
import { type Rehearsal, rehearsePlans } from "./rehearsal.ts";
import { type AccountUsage, readUsage } from "./usage.ts";

export interface NewKey {
  /** From `hashKey`; the key itself is never stored. */
  readonly keyHash: Buffer;
  /** The env in the key. */
  readonly env: string;
}

export interface IssueRequest extends NewKey {
  /** Name of the account, made when there is none. */
  readonly account: string;
  /** Plan of a new account (`free` when not given); an account that exists must be on it already. */
  readonly plan?: PlanName | undefined;
  /** Limits of the account's own: required for a new enterprise account, refused for the other plans. */
  readonly limits?: AccountLimits | null | undefined;
  /** All of them when not given. */
  readonly scopes?: readonly Scope[] | undefined;
  /** Unix milliseconds; a key without one does not expire. */
  readonly expiresAtMs?: number | null | undefined;
}

export interface IssuedKey extends Account {
  readonly keyId: string;
  readonly expiresAtMs: number | null;
}

export interface RotatedKey extends IssuedKey {
  /** Unix milliseconds until which the old key still works. */
  readonly oldExpiresAtMs: number;
}

/** What operators do with accounts and keys. What was refused throws a KeyStoreError with a text for people. */
export interface KeyAdmin {
  /** @throws KeyStoreError `invalid_account`, `invalid_limits`, `plan_differs` */
  issue(request: IssueRequest): Promise<IssuedKey>;
  /** Every key, or those of one account, in the order of account and age. @throws KeyStoreError `unknown_account` */
  list(account?: string): Promise<KeyRecord[]>;
  /**
   * Puts a new key of the same account, scopes and expiry in the place of one that works. The old one works on for
   * `graceMs`, never past its own expiry. Bans stay with the old key.
   *
   * @throws KeyStoreError `unknown_key`, `key_revoked`, `key_expired`, `key_replaced`
   */
  rotate(keyId: string, graceMs: number, newKey: NewKey): Promise<RotatedKey>;
  /** Ends a key; doing it again changes nothing. @throws KeyStoreError `unknown_key` */
  revoke(keyId: string): Promise<KeyRecord>;
  /** @throws KeyStoreError `invalid_account`, `invalid_limits`, `unknown_account` */
  setPlan(account: string, plan: PlanName, limits?: AccountLimits | null): Promise<Account>;
  /** Keys under a ban that still runs, the one that ends last first. */
  bans(): Promise<KeyRecord[]>;
  /** Lifts a ban and forgets the ladder of the key. @returns whether a ban was running @throws KeyStoreError `unknown_key` */
  unban(keyId: string): Promise<{ key: KeyRecord; lifted: boolean }>;
  /** Keys, last use and use of deprecated routes of every account, by name. */
  usage(): Promise<AccountUsage[]>;
  /** What another table of plans would have done to the traffic of the last days. */
  rehearse(now: PlanTable, then: PlanTable): Promise<Rehearsal>;
}

/**
 * @param db migrated with `keyMigrations`
 * @param now Unix milliseconds
 */
export function createKeyAdmin(db: Knex, now: () => number): KeyAdmin {
  async function getKey(keyId: string): Promise<KeyRecord> {
    const key = await readKey(db, keyId);
    if (key === undefined) throw unknownKey(keyId);
    return key;
  }

  return {
    async issue({ account: name, plan, limits, scopes = allScopes, expiresAtMs = null, keyHash, env }) {
      const nowMs = now();
      const account = await ensureAccount(db, name, nowMs, plan, limits);
      const keyId = newKeyId();
      await retried(db, () =>
        db("api_keys").insert({
          id: keyId,
          account_id: account.accountId,
          key_hash: keyHash,
          env,
          scopes: fromScopes(scopes),
          created_at: nowMs,
          expires_at: expiresAtMs,
        }),
      );
      return { keyId, ...account, expiresAtMs };
    },

    async list(account) {
      const only = account === undefined ? undefined : await getAccount(db, account);
      return await readKeys(db, (keys) => {
        if (only !== undefined) keys.where("k.account_id", only.accountId);
        return keys.orderBy(["a.name", "k.created_at", "k.id"]);
      });
    },

    async rotate(oldId, graceMs, { keyHash, env }) {
      const old = requireRotatable(await getKey(oldId), now());
      const account = await getAccount(db, old.account);
      const nowMs = now();
      const keyId = newKeyId();
      const oldExpiresAtMs = Math.min(old.expiresAtMs ?? Number.POSITIVE_INFINITY, nowMs + graceMs);
      const rotated = await retried(db, () =>
        db.transaction(async (trx) => {
          // A write comes first and repeats the conditions: of two rotations at once, one finds nothing to change.
          const changed = await trx("api_keys")
            .where({ id: oldId })
            .whereNull("revoked_at")
            .whereNull("replaced_by")
            .where((valid) => valid.whereNull("expires_at").orWhere("expires_at", ">", nowMs))
            .update({ replaced_by: keyId, expires_at: oldExpiresAtMs });
          if (changed === 0) return false;
          await trx("api_keys").insert({
            id: keyId,
            account_id: account.accountId,
            key_hash: keyHash,
            env,
            scopes: fromScopes(old.scopes),
            created_at: nowMs,
            expires_at: old.expiresAtMs,
          });
          return true;
        }),
      );
      if (rotated) return { keyId, ...account, expiresAtMs: old.expiresAtMs, oldExpiresAtMs };
      requireRotatable(await getKey(oldId), nowMs);
      throw new Error("a key that can be rotated was not");
    },

    async revoke(keyId) {
      await retried(db, () =>
        db("api_keys").where({ id: keyId }).whereNull("revoked_at").update({ revoked_at: now() }),
      );
      return await getKey(keyId);
    },

    setPlan: (account, plan, limits) => changePlan(db, account, plan, limits),

    bans: () => readKeys(db, (keys) => keys.where("k.banned_until", ">", now()).orderBy("k.banned_until", "desc")),

    async unban(keyId) {
      const key = await getKey(keyId);
      await retried(db, () =>
        db("api_keys").where({ id: keyId }).update({ banned_until: 0, ban_step: 0, banned_at: null }),
      );
      return { key, lifted: key.bannedUntilMs > now() };
    },

    usage: () => readUsage(db, now()),

    rehearse: (plansNow, plansThen) => rehearsePlans(db, plansNow, plansThen),
  };
}

function newKeyId(): string {
  return `key_${randomBytes(10).toString("hex")}`;
}

function requireRotatable(key: KeyRecord, nowMs: number): KeyRecord {
  if (key.revokedAtMs !== null) throw new KeyStoreError("key_revoked", `Key ${key.keyId} is revoked; issue a new one.`);
  if (key.expiresAtMs !== null && key.expiresAtMs <= nowMs) {
    throw new KeyStoreError("key_expired", `Key ${key.keyId} has expired; issue a new one.`);
  }
  if (key.replacedBy !== null) {
    throw new KeyStoreError("key_replaced", `Key ${key.keyId} was replaced already; rotate ${key.replacedBy}.`);
  }
  return key;
}
