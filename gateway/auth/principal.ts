export const planNames = ["free", "pro", "business", "enterprise"] as const;
export type PlanName = (typeof planNames)[number];

export const scopes = ["inventory:read", "inventory:write", "store:read"] as const;
export type Scope = (typeof scopes)[number];

/** Limits of one account's own, for the enterprise plan. */
export interface AccountLimits {
  readonly perMinute: number;
  readonly perDay: number;
}

/** Who a valid API key stands for. */
export interface Principal {
  /** Public, opaque name of the key; safe in logs. */
  readonly keyId: string;
  /** Opaque id of the account; limits count under it. */
  readonly accountId: string;
  readonly plan: PlanName;
  /** Set when, and only when, the plan is enterprise. */
  readonly limits: AccountLimits | null;
  readonly scopes: ReadonlySet<Scope>;
  /** Unix milliseconds, or null for a key that does not expire. */
  readonly expiresAtMs: number | null;
  /** Unix milliseconds until which the key is banned; 0 for one that is not. */
  readonly bannedUntilMs: number;
}
