/** Replaces a key by a new one. The keys that rotations make of each other are a family, which counts as one key. */
import { randomBytes } from "node:crypto";
import type { Knex } from "knex";
import { clockMsSql, retriedIfUndone } from "../../../runtime/database/statements.ts";
import type { StoredKey } from "./key-format.ts";
import { type DbInteger, toNumber, toScopes } from "./key-rows.ts";
import type { Scope } from "./principal.ts";

export interface Rotation {
  readonly oldId: string;
  readonly newKey: StoredKey;
  /** How long the old key still works; it never works past the end that it has. */
  readonly graceMs: number;
  /** Whether the new key may take the place of one that an earlier rotation made and no request has used. */
  readonly replacesUnused: boolean;
}

/** The key that takes the place of another one. */
export interface SuccessorKey {
  readonly keyId: string;
  readonly familyId: string;
  readonly scopes: readonly Scope[];
  /** Unix milliseconds, or null for a key that does not expire. */
  readonly expiresAtMs: number | null;
  /** Unix milliseconds until which the old key still works. */
  readonly oldExpiresAtMs: number;
}

/** Why a key was not rotated: it is unknown, revoked or expired, or another key has taken its place. */
export type RotationRefusal = "ended" | "replaced";

/**
 * Makes a new key with the account, scopes and end of the old one. Every other key of the family ends at once, so at
 * most two of them work. Of several rotations at once each sees what the one before has done. Ends go by the clock of
 * the database server, and not by those of gateways.
 *
 * @throws the error of the database; then it may have happened or not
 */
export async function rotateKey(db: Knex, rotation: Rotation): Promise<SuccessorKey | RotationRefusal> {
  const keyId = newKeyId();
  return await retriedIfUndone(() => db.transaction((trx) => rotate(trx, keyId, rotation)));
}

export function newKeyId(): string {
  return `key_${randomBytes(10).toString("hex")}`;
}

async function rotate(
  trx: Knex.Transaction,
  keyId: string,
  { oldId, newKey, graceMs, replacesUnused }: Rotation,
): Promise<SuccessorKey | RotationRefusal> {
  const old = await lockKey(trx, oldId);
  if (!old || old.revoked_at !== null) return "ended";
  const nowMs = Number(old.now_ms);
  const endMs = toNumber(old.expires_at) ?? Number.POSITIVE_INFINITY;
  if (endMs <= nowMs) return "ended";
  const successor = old.replaced_by === null ? undefined : await lockKey(trx, old.replaced_by);
  if (successor && !(replacesUnused && successor.last_used_at === null)) return "replaced";

  const familyId = old.line ?? oldId;
  await trx("api_keys")
    .where({ account_id: old.account_id })
    .where((ofFamily) => ofFamily.where({ line: familyId }).orWhere({ id: familyId }))
    .whereNot({ id: oldId })
    .whereNull("revoked_at")
    .update({ revoked_at: nowMs });
  const oldExpiresAtMs = Math.min(endMs, nowMs + graceMs);
  // Without a grace the old key is revoked, too: by a clock that is behind after a failover it would work on.
  const revokedAtMs = graceMs > 0 ? null : nowMs;
  await trx("api_keys")
    .where({ id: oldId })
    .update({ replaced_by: keyId, expires_at: oldExpiresAtMs, revoked_at: revokedAtMs });
  // After an earlier rotation the old key ends with its grace, and its successor has the original end.
  const expiresAtMs = toNumber((successor ?? old).expires_at);
  await trx("api_keys").insert({
    id: keyId,
    account_id: old.account_id,
    line: familyId,
    key_hash: newKey.keyHash,
    env: newKey.env,
    pepper: newKey.pepperFingerprint,
    scopes: old.scopes,
    created_at: nowMs,
    expires_at: expiresAtMs,
  });
  return { keyId, familyId, scopes: toScopes(old.scopes), expiresAtMs, oldExpiresAtMs };
}

/**
 * Locks the row of a key, then reads it. The lock is an UPDATE that changes nothing: SQLite has no FOR UPDATE, and a
 * transaction there that has read first may not be able to write any more.
 */
async function lockKey(trx: Knex.Transaction, id: string): Promise<KeyRow | undefined> {
  await trx("api_keys")
    .where({ id })
    .update({ id: trx.ref("id") });
  const columns = ["account_id", "line", "scopes", "expires_at", "revoked_at", "replaced_by", "last_used_at"];
  return await trx("api_keys")
    .where({ id })
    .first([...columns, trx.raw(`${clockMsSql(trx)} as now_ms`)]);
}

interface KeyRow {
  account_id: string;
  line: string | null;
  scopes: string;
  expires_at: DbInteger | null;
  revoked_at: DbInteger | null;
  replaced_by: string | null;
  last_used_at: DbInteger | null;
  now_ms: DbInteger;
}
