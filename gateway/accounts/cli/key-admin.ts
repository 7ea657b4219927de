/** What operators do with keys: issue, list, rotate, revoke, lift bans. */
import type { Knex } from "knex";
import { retried, retriedIfUndone } from "../../../runtime/database/statements.ts";
import { invariant } from "../../../runtime/invariant.ts";
import type { StoredKey } from "../keys/key-format.ts";
import { newKeyId, type RotationRefusal, rotateKey, type SuccessorKey } from "../keys/key-rotation.ts";
import { fromScopes } from "../keys/key-rows.ts";
import type { AccountLimits, PlanName } from "../keys/plans.ts";
import { defaultScopes, type Scope } from "../keys/principal.ts";
import { AccountError } from "./account-error.ts";
import {
  type Account,
  type AccountIdentity,
  changePlan,
  ensureAccount,
  getAccount,
  identifyAccount,
} from "./account-store.ts";
import { readUsage, type UsageTotals } from "./account-usage.ts";
import { type KeyRecord, readKeys } from "./key-records.ts";

/** What operators do with accounts and keys. A refused request throws an AccountError with a text for people. */
export interface KeyAdmin {
  /** Makes a key. @throws AccountError `invalid_account`, `invalid_limits`, `plan_differs` */
  issue(request: IssueRequest): Promise<IssuedKey>;
  /**
   * Every key, or those of one account, by account and age.
   *
   * @throws AccountError `invalid_account`, `unknown_account`
   */
  list(account?: string): Promise<KeyRecord[]>;
  /**
   * Replaces a working key with a new one of the same account, scopes and expiry. The old key works for another
   * `graceMs`, but never past its own expiry. Both are of one family: they share bans and strikes. Any other key of the
   * family ends at once.
   *
   * @throws AccountError `unknown_key`, `key_revoked`, `key_expired`, `key_replaced`
   */
  rotate(keyId: string, graceMs: number, newKey: StoredKey): Promise<Account & SuccessorKey>;
  /** Ends a key; doing it again changes nothing. @throws AccountError `unknown_key` */
  revoke(keyId: string): Promise<KeyRecord>;
  /**
   * Ends all keys of an account, as far as they still work.
   *
   * @returns the ids of the keys that it has ended
   * @throws AccountError `invalid_account`, `unknown_account`
   */
  revokeAll(account: string): Promise<{ account: AccountIdentity; keyIds: string[]; revokedAtMs: number }>;
  /**
   * Changes the plan of an account.
   *
   * @param limits the account's own limits: required for a plan whose accounts have such, else refused
   * @throws AccountError `invalid_account`, `invalid_limits`, `unknown_account`
   */
  changePlan(account: string, plan: PlanName, limits?: AccountLimits | null): Promise<Account>;
  /** Keys that only a ban keeps from working; the key whose ban ends last comes first. */
  bans(): Promise<KeyRecord[]>;
  /**
   * Lifts the ban of a key and its family, so that their next ban is a first one again.
   *
   * @returns the key as it was before, and whether a ban was running
   * @throws AccountError `unknown_key`
   */
  unban(keyId: string): Promise<{ key: KeyRecord; lifted: boolean }>;
  /**
   * Keys, last use, requests and use of deprecated operations of every account, by name.
   *
   * @param sinceMs requests since then are counted, in Unix milliseconds
   */
  usage(sinceMs: number): Promise<UsageTotals[]>;
}

export interface IssueRequest extends StoredKey {
  /** Name of the account, made when there is none. */
  readonly account: string;
  /** Plan of a new account, default `free`; an account that exists must be on it already. */
  readonly plan?: PlanName | undefined;
  /** A new account's own limits, as in `changePlan`. */
  readonly limits?: AccountLimits | null | undefined;
  /** Default: `defaultScopes`. */
  readonly scopes?: readonly Scope[] | undefined;
  /** Unix milliseconds; a key without an end does not expire. */
  readonly expiresAtMs?: number | null | undefined;
}

export interface IssuedKey extends Account {
  readonly keyId: string;
  readonly expiresAtMs: number | null;
}

/**
 * @param db migrated with `gatewayMigrations`
 * @param now Unix milliseconds
 */
export function createKeyAdmin(db: Knex, now: () => number): KeyAdmin {
  async function getKey(keyId: string): Promise<KeyRecord> {
    const [key] = await readKeys(db, (keys) => keys.where("k.id", keyId));
    if (key === undefined) throw unknownKey(keyId);
    return key;
  }

  return {
    async issue({
      account: name,
      plan,
      limits,
      scopes = defaultScopes,
      expiresAtMs = null,
      keyHash,
      env,
      pepperFingerprint,
    }) {
      const nowMs = now();
      const account = await ensureAccount(db, name, nowMs, plan, limits);
      const keyId = newKeyId();
      await retriedIfUndone(() =>
        db("api_keys").insert({
          id: keyId,
          account_id: account.accountId,
          key_hash: keyHash,
          env,
          pepper: pepperFingerprint,
          scopes: fromScopes(scopes),
          created_at: nowMs,
          expires_at: expiresAtMs,
        }),
      );
      return { keyId, ...account, expiresAtMs };
    },

    async list(account) {
      const only = account === undefined ? undefined : await identifyAccount(db, account);
      return await readKeys(db, (keys) => {
        if (only !== undefined) keys.where("k.account_id", only.accountId);
        return keys.orderBy(["a.name", "k.created_at", "k.id"]);
      });
    },

    async rotate(oldId, graceMs, newKey) {
      const old = await getKey(oldId);
      const account = await getAccount(db, old.account);
      const rotated = await rotateKey(db, { oldId, newKey, graceMs, replacesUnused: false });
      if (typeof rotated === "object") return { ...account, ...rotated };
      throw notRotated(rotated, await getKey(oldId));
    },

    async revoke(keyId) {
      await retried(() => db("api_keys").where({ id: keyId }).whereNull("revoked_at").update({ revoked_at: now() }));
      const key = await getKey(keyId);
      invariant(key.revokedAtMs !== null, "a key that was revoked is read as revoked");
      return key;
    },

    async revokeAll(name) {
      const account = await identifyAccount(db, name); // on a plan that this version does not know, too
      const nowMs = now();
      const ofAccount = () => db("api_keys").where({ account_id: account.accountId });
      const endAll = () => ofAccount().whereNull("revoked_at").update({ revoked_at: nowMs });
      // Repeats until no key is left: a rotation under way adds a key that the first statement may not see. Expired
      // keys count, too: the rotation may just have expired the only key, and a count of 0 would end the loop before
      // it sees the new key.
      while ((await retried(endAll)) > 0);
      const ended: { id: string }[] = await ofAccount()
        .where({ revoked_at: nowMs })
        .where(isValidAt(nowMs))
        .orderBy("id")
        .select("id");
      return { account, keyIds: ended.map(({ id }) => id), revokedAtMs: nowMs };
    },

    changePlan: (account, plan, limits) => changePlan(db, account, plan, limits),

    bans: () =>
      readKeys(db, (keys) =>
        keys
          .where("f.banned_until", ">", now())
          .whereNull("k.revoked_at")
          .where(isValidAt(now(), "k.expires_at"))
          .orderBy([{ column: "f.banned_until", order: "desc" }, "k.id"]),
      ),

    async unban(keyId) {
      const key = await getKey(keyId);
      await retried(() =>
        db("api_keys").where({ id: key.familyId }).update({ banned_until: 0, ban_step: 0, banned_at: null }),
      );
      return { key, lifted: key.bannedUntilMs > now() };
    },

    usage: (sinceMs) => readUsage(db, now(), sinceMs),
  };
}

function isValidAt(nowMs: number, column = "expires_at"): (keys: Knex.QueryBuilder) => void {
  return (keys) => void keys.whereNull(column).orWhere(column, ">", nowMs);
}

function notRotated(refusal: RotationRefusal, { keyId, revokedAtMs, replacedBy }: KeyRecord): AccountError {
  if (refusal === "replaced") {
    return new AccountError("key_replaced", `Key ${keyId} was replaced already; rotate ${replacedBy}.`);
  }
  if (revokedAtMs !== null) return new AccountError("key_revoked", `Key ${keyId} is revoked; issue a new one.`);
  return new AccountError("key_expired", `Key ${keyId} has expired; issue a new one.`);
}

/** The error for a key id that no key has. It does not repeat a whole key given in place of an id: that is a secret. */
function unknownKey(keyId: string): AccountError {
  return new AccountError(
    "unknown_key",
    /^[\w-]{1,40}$/.test(keyId) && !keyId.startsWith("ps_")
      ? `There is no key ${keyId}; 'list' shows all.`
      : "That is not the id of a key (key_…); 'list' shows all.",
  );
}
