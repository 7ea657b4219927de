/** Keys as operators see them. */
import type { Knex } from "knex";
import { type DbInteger, firstOfFamily, type PlanRow, toNumber, toScopes } from "../keys/key-rows.ts";
import type { Scope } from "../keys/principal.ts";

/** A key as operators see it, without its hash and its pepper. All times are Unix milliseconds. */
export interface KeyRecord {
  readonly keyId: string;
  /** The id of the family's first key, from which rotations made the others. */
  readonly familyId: string;
  /** Name of the account. */
  readonly account: string;
  /** Perhaps one that this version does not know. */
  readonly plan: string;
  readonly env: string;
  readonly scopes: readonly Scope[];
  readonly createdAtMs: number;
  readonly expiresAtMs: number | null;
  readonly revokedAtMs: number | null;
  /** The key that a rotation made in place of this one. */
  readonly replacedBy: string | null;
  readonly lastUsedAtMs: number | null;
  /** End of the ban of the whole family; 0 without one, or after it was lifted. */
  readonly bannedUntilMs: number;
  readonly bannedAtMs: number | null;
  /** Place of the latest ban on the ladder, from 1; 0 without one. */
  readonly banStep: number;
}

/**
 * Selects keys as `k`, the first keys of their families as `f`, and their accounts as `a`; `narrow` adds conditions and
 * the order.
 */
export async function readKeys(db: Knex, narrow: (keys: Knex.QueryBuilder) => Knex.QueryBuilder): Promise<KeyRecord[]> {
  const keys = db("api_keys as k").join("accounts as a", "a.id", "k.account_id");
  keys.join("api_keys as f", "f.id", firstOfFamily(db));
  // Column by column: the hash never leaves the database.
  const rows: KeyRow[] = await narrow(keys).select(
    { name: "a.name", plan: "a.plan", per_minute: "a.per_minute", per_day: "a.per_day", id: "k.id", env: "k.env" },
    { scopes: "k.scopes", created_at: "k.created_at", expires_at: "k.expires_at", revoked_at: "k.revoked_at" },
    { replaced_by: "k.replaced_by", last_used_at: "k.last_used_at", line: "f.id" },
    { banned_until: "f.banned_until", banned_at: "f.banned_at", ban_step: "f.ban_step" },
  );
  return rows.map((row) => ({
    keyId: row.id,
    familyId: row.line,
    account: row.name,
    plan: row.plan,
    env: row.env,
    scopes: toScopes(row.scopes),
    createdAtMs: Number(row.created_at),
    expiresAtMs: toNumber(row.expires_at),
    revokedAtMs: toNumber(row.revoked_at),
    replacedBy: row.replaced_by,
    lastUsedAtMs: toNumber(row.last_used_at),
    bannedUntilMs: Number(row.banned_until),
    bannedAtMs: toNumber(row.banned_at),
    banStep: Number(row.ban_step),
  }));
}

export type KeyState = "active" | "replaced" | "banned" | "expired" | "revoked";

/** The state that matters most. A key that is `replaced` works until its grace ends. */
export function keyState(key: KeyRecord, nowMs: number): KeyState {
  if (key.revokedAtMs !== null) return "revoked";
  if (key.expiresAtMs !== null && key.expiresAtMs <= nowMs) return "expired";
  if (key.bannedUntilMs > nowMs) return "banned";
  return key.replacedBy === null ? "active" : "replaced";
}

interface KeyRow extends PlanRow {
  id: string;
  line: string;
  name: string;
  env: string;
  scopes: string;
  created_at: DbInteger;
  expires_at: DbInteger | null;
  revoked_at: DbInteger | null;
  replaced_by: string | null;
  last_used_at: DbInteger | null;
  banned_until: DbInteger;
  banned_at: DbInteger | null;
  ban_step: DbInteger;
}
