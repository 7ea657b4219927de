/** What the API answers. Generated from gateway/openapi/openapi.yaml by `npm run generate`; do not edit. */

/** Status of a pet. This API shows it and never changes it. It does not follow the quantity: a pet is sold out when its `quantity` is 0. */
export type PetStatus = "available" | "pending" | "sold";

/** The stock of one pet. */
export type InventoryItem = {
  /** Identifier of the animal that this entry tracks. It is any int64 and exact in both directions. A JSON reader that turns numbers into 64-bit floats, as JavaScript's does, loses digits beyond 2^53. */
  readonly petId: bigint;
  /** Current stock count. */
  readonly quantity: number;
  readonly status: PetStatus;
};

/** The difference between two states of the list. */
export type InventoryChanges = {
  /** The `ETag` of the list that the difference leads to. */
  readonly etag: string;
  /** The entries that were made or changed, in the order of `petId`. */
  readonly changed: readonly (InventoryEntry)[];
  /** The `petId`s of the entries that were removed, in ascending order. */
  readonly removed: readonly (bigint)[];
};

/** The stock of one pet, with its ETag. */
export type InventoryEntry = {
  /** The ID of the pet. */
  readonly petId: bigint;
  /** Current stock count. */
  readonly quantity: number;
  readonly status: PetStatus;
  /** Strong ETag of the entry, for `ifMatch` in the next update. */
  readonly etag: string;
};

/** An entry after an update. */
export type UpdatedEntry = {
  /** The ID of the pet. */
  readonly petId: bigint;
  /** The stock count. */
  readonly quantity: number;
  readonly status: PetStatus;
  /** Strong ETag of the entry after the update, for `ifMatch` in the next one. */
  readonly etag: string;
  /** True when an earlier request with this `Idempotency-Key` made the update. Then the entry is as that request left it. Missing otherwise. */
  readonly replayed?: boolean;
};

/** Changes of one entry, the newest first. */
export type InventoryHistory = {
  readonly changes: readonly (PastChange)[];
  /** What `before` has to be for the next page; null after the last one. */
  readonly next: string | null;
};

/** A change of an entry. */
export type PastChange = {
  /** The ETag that the change gave to the entry. */
  readonly etag: string;
  /** When it was made, by the clock of the database. */
  readonly at: string;
  /** `set` and `adjust` changed the quantity, `status` the status. `create` and `remove` made the entry and removed it. `import` brought it to a state from a file. */
  readonly kind: "set" | "adjust" | "status" | "create" | "remove" | "import";
  /** Null where there was no entry. */
  readonly quantityBefore: number | null;
  /** Null where there is no entry after the change. */
  readonly quantityAfter: number | null;
  /** Null where there was no entry. */
  readonly statusBefore: string | null;
  /** Null where there is no entry after the change. */
  readonly statusAfter: string | null;
  /** Who made it: your account, another account, one of this store's own services, or an operator. */
  readonly by: "you" | "other" | "internal" | "operator";
  /** The key that made it; only where `by` is `you`. */
  readonly keyId?: string;
  /** `X-Request-Id` of its request; null where `by` is not `you`. */
  readonly requestId: string | null;
  /** The reason that was sent with it; null where `by` is not `you`. */
  readonly reason: string | null;
};

/** What is left of an account's limits, and what the key of the request allows. */
export type RateLimitStatus = {
  /** The plan of the account. */
  readonly plan: "free" | "pro" | "business" | "enterprise";
  /** The windows of the account. They begin and end by the clock, at times that differ by account. */
  readonly windows: readonly ({
    readonly name: "minute" | "day";
    /** Requests that the window admits. */
    readonly limit: number;
    /** Requests that were charged to it. */
    readonly used: number;
    /** Requests that it still admits. */
    readonly remaining: number;
    /** The end of the window. */
    readonly resetAt: string;
  })[];
  /** The ban of the key; null when none is running. */
  readonly ban?: {
    /** The end of the ban. */
    readonly until: string;
  } | null;
  /** The key of the request. */
  readonly key: {
    /** The public name of the key. */
    readonly id: string;
    /** What it allows. */
    readonly scopes: readonly (string)[];
    /** Its end; null for never. */
    readonly expiresAt: string | null;
  };
};

/** The requests of an account over time. */
export type Usage = {
  /** The start of the first step. */
  readonly from: string;
  /** The end of the last step, which is still running. */
  readonly to: string;
  /** The length of a step. */
  readonly stepSeconds: 60 | 3600;
  /** Every step in order, those without a request too. */
  readonly steps: readonly ({
    /** The start of the step. */
    readonly at: string;
    /** Requests that were charged. */
    readonly served: number;
    /** Requests that a spent window or a ban refused. */
    readonly refused: number;
  })[];
  /** Requests to deprecated operations since the day of `from` began, in UTC. */
  readonly deprecated: number;
};

/** The key that takes the place of another. */
export type RotatedKey = {
  /** The public name of the new key. */
  readonly keyId: string;
  /** The new key. Keep it safe. */
  readonly key: string;
  /** What it allows. */
  readonly scopes: readonly (string)[];
  /** Its end; null for never. */
  readonly expiresAt: string | null;
  /** The end of the old key. */
  readonly previousKeyEndsAt: string;
};

/** A pet, as the service that owns it describes it. */
export type Pet = {
  /** The ID of the pet. */
  readonly id?: bigint;
  readonly [member: string]: unknown;
};

/** An order, as the service that owns it describes it. */
export type Order = {
  /** The ID of the order. */
  readonly id?: bigint;
  /** The ID of the pet. */
  readonly petId?: bigint;
  readonly [member: string]: unknown;
};

/** The body of every error. It has exactly these members. */
export type ErrorBody = {
  /** Machine-readable error code, from a closed set. */
  readonly code: "missing_api_key" | "invalid_api_key" | "insufficient_scope" | "invalid_request" | "invalid_json" | "not_found" | "changes_unavailable" | "method_not_allowed" | "payload_too_large" | "unsupported_media_type" | "key_replaced" | "insufficient_stock" | "quantity_overflow" | "precondition_failed" | "idempotency_key_reused" | "rate_limit_exceeded" | "api_key_banned" | "upstream_unavailable" | "upstream_timeout" | "service_unavailable" | "timeout" | "internal_error";
  /** Human-readable description of the error. Its wording may change. */
  readonly message: string;
  /** The HTTP status code. */
  readonly status: number;
};
