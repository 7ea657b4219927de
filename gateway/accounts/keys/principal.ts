/** The caller of a request, and what its key allows. */
import type { AccountLimits, PlanName } from "./plans.ts";

/** The account and the key that a request was made with. */
export interface Principal {
  /** Public, opaque name of the key; safe in logs. */
  readonly keyId: string;
  /** The id of the family's first key, from which rotations made the others: bans and strikes count under it. */
  readonly familyId: string;
  /** Opaque id of the account; limits count under it. */
  readonly accountId: string;
  readonly plan: PlanName;
  /** Null exactly when the plan has the same limits for all its accounts. */
  readonly limits: AccountLimits | null;
  readonly scopes: ReadonlySet<Scope>;
  /** Unix milliseconds, or null for a key that does not expire. */
  readonly expiresAtMs: number | null;
  /** Unix milliseconds until which its family of keys is banned; 0 without a ban. */
  readonly bannedUntilMs: number;
}

/** What a key may do unless it is issued with other scopes. */
export const defaultScopes = ["inventory:read", "inventory:write", "store:read"] as const;

export const scopes = [...defaultScopes, "keys:rotate"] as const;
export type Scope = (typeof scopes)[number];
