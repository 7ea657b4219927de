// Generated from rest-client/ by `npm run generate`; do not edit. Apache-2.0.
/** Reads the headers that tell what is left of the limits, and how long to wait. */
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
/** The one error of the client. */
/** A code of the API, or one of the client's own. */
export type ErrorCode = ErrorBody["code"] | "no_answer" | "unknown_answer";
interface ErrorDetails {
    readonly status?: number;
    readonly requestId?: string | undefined;
    readonly retryAfterMs?: number | undefined;
    readonly cause?: unknown;
}
/**
 * A request that was refused, or that got no usable answer.
 *
 * An update that failed with status 0 or 5xx, or with `unknown_answer`, may have happened. Repeat it with the same
 * `idempotencyKey`.
 */
export declare class InventoryApiError extends Error {
    /**
     * A code of the API, as `not_found`. Two are the client's own: `no_answer` (the connection failed or the time was up;
     * in a page also where the API has another origin, because it has no CORS) and `unknown_answer` (an answer that is
     * not of this API, as a proxy sends it).
     */
    readonly code: ErrorCode;
    /** HTTP status; 0 where there was no answer, 429 also where the limits kept this client from sending. */
    readonly status: number;
    /** `X-Request-Id` of the answer, to quote in a report. */
    readonly requestId: string | undefined;
    /** Time in ms after which a repeat can succeed, where it is known; at most 24 days, which a timer can take. */
    readonly retryAfterMs: number | undefined;
    constructor(code: ErrorCode, message: string, { status, requestId, retryAfterMs, cause }?: ErrorDetails);
}
/** Follows the stock: the whole of it first, then every difference. */
/** The whole stock: the first event, and again whenever its differences are no longer known. */
export interface StockEvent {
    readonly type: "stock";
    readonly etag: string;
    readonly items: readonly InventoryItem[];
}
/** What has changed since the event before; applied to that stock it gives the stock of `etag`. */
export interface ChangesEvent extends InventoryChanges {
    readonly type: "changes";
}
export type FollowEvent = StockEvent | ChangesEvent;
/** Checks many changes and renders them as JSON before the first of them is sent. */
/** One of many updates. */
export interface EntryUpdate {
    readonly petId: bigint | number;
    readonly quantity: number;
    readonly ifMatch?: string | undefined;
    readonly reason?: string | undefined;
}
/** One of many adjustments. */
export interface Adjustment extends Omit<EntryUpdate, "quantity"> {
    /** Negative to take away; not 0. */
    readonly delta: number;
}
/** What the client offers its callers, and what it takes from them. */
export interface InventoryApiOptions {
    /**
     * Base address, which ends in `/v1`; in a page of the API's own origin it may be `/v1` alone. Where nothing answers
     * at this address, calls fail with `no_answer` after a minute of repeats, but `follow` goes on. A `signal` ends them
     * earlier.
     */
    readonly baseUrl: string;
    readonly apiKey: string;
    /** Sends the requests; default: the `fetch` of the runtime. */
    readonly fetch?: typeof globalThis.fetch;
}
export interface CallOptions {
    /** Ends the call, its waits for the limits and its repeats included. */
    readonly signal?: AbortSignal | undefined;
}
export interface UpdateOptions extends CallOptions {
    /** `etag` of the entry, or a list of them: the update happens only while the entry has one of these. */
    readonly ifMatch?: string | undefined;
    /**
     * Names the update, so that it happens once however often it is sent: 1 to 64 of `A-Z a-z 0-9 _ . : -`; default: a
     * new one for each call. Where `updateMany` needs more than one request, each after the first appends a dot and the
     * place of its first entry. So a repeat of the whole call has the same keys.
     */
    readonly idempotencyKey?: string | undefined;
    /** Why, for the history: 1 to 200 characters. */
    readonly reason?: string | undefined;
}
/** Options of many changes, each of which has its own precondition and reason. */
export type ManyOptions = Pick<UpdateOptions, "idempotencyKey" | "signal">;
/** What became of one of many updates. */
export type UpdateResult = UpdatedEntry | {
    readonly petId: bigint;
    readonly error: Pick<InventoryApiError, "code" | "message" | "status">;
};
export interface ListOptions extends CallOptions {
    readonly petIds?: readonly (bigint | number)[] | undefined;
}
/** Entries in the order of petId. */
export type InventoryList = readonly InventoryItem[] & {
    /** The tag of the whole list, for `changes`. */
    readonly etag: string;
};
export interface InventoryApi {
    /**
     * Every entry, or those of up to 100 petIds that exist. A whole list that has not changed is not sent again.
     *
     * @param options `petIds`: 1 to 100, in any order; default: all
     */
    list(options?: ListOptions): Promise<InventoryList>;
    /**
     * The stock in pages, each as it is when it is read. `changes` since the tag of the first page give what has changed
     * while the others were read.
     *
     * @param options `limit`: entries of a page, up to 10,000; default: 1,000
     */
    pages(options?: CallOptions & {
        readonly limit?: number;
    }): AsyncGenerator<InventoryList, void, undefined>;
    /** One entry. Its `etag` is empty where a proxy removes the header. @throws InventoryApiError `not_found` */
    get(petId: bigint | number, options?: CallOptions): Promise<InventoryEntry>;
    /** Sets a quantity. @throws InventoryApiError `not_found`; `precondition_failed` when `ifMatch` does not hold */
    update(petId: bigint | number, quantity: number, options?: UpdateOptions): Promise<UpdatedEntry>;
    /**
     * Sets many quantities, each by itself. A request carries up to a hundred of them in up to 16 KiB. The results are in
     * the order of `updates`.
     *
     * @throws InventoryApiError when the first request fails. When a later one does, its updates get the error as their
     * result, and so do all after them, which are not sent
     */
    updateMany(updates: readonly EntryUpdate[], options?: ManyOptions): Promise<UpdateResult[]>;
    /**
     * Adds to a quantity, or takes from it with a negative `delta`: once, however often the request has to be sent.
     *
     * @throws InventoryApiError `not_found`, `precondition_failed`; `insufficient_stock` when it would fall below 0
     */
    adjust(petId: bigint | number, delta: number, options?: UpdateOptions): Promise<UpdatedEntry>;
    /**
     * Adds to up to a hundred quantities, or takes from them: all or none, once.
     *
     * @throws InventoryApiError as `adjust`, with a message that names the petId; then nothing was changed
     */
    adjustMany(adjustments: readonly Adjustment[], options?: ManyOptions): Promise<UpdatedEntry[]>;
    /**
     * The changes of an entry, the newest first, and who made them.
     *
     * @param options `limit`: 1 to 100; default: 20. `before`: `next` of the latest page
     */
    history(petId: bigint | number, options?: CallOptions & {
        readonly limit?: number;
        readonly before?: string | null;
    }): Promise<InventoryHistory>;
    /**
     * What has changed since the `etag` of a list or of earlier changes.
     *
     * @param options `waitSeconds`: how long the answer may wait for a change, in seconds up to 90; default: not at all
     * @throws InventoryApiError `changes_unavailable`: read the list again
     */
    changes(since: string, options?: CallOptions & {
        readonly waitSeconds?: number;
    }): Promise<InventoryChanges>;
    /** The stock, then every difference, once and in order; the stock again where differences are no longer known. */
    follow(options?: CallOptions): AsyncGenerator<FollowEvent, never, undefined>;
    /** What is left of the limits. The account's limits do not count this, and banned keys may ask. */
    rateLimit(options?: CallOptions): Promise<RateLimitStatus>;
    /** Requests of the account in the last hours, up to 168. The account's limits do not count this. */
    usage(options?: CallOptions & {
        readonly hours?: number;
    }): Promise<Usage>;
    /** The record of a pet, from the service that owns the pets. @throws InventoryApiError `not_found` */
    pet(petId: bigint | number, options?: CallOptions): Promise<Pet>;
    /** The orders, from the service that owns them. */
    orders(options?: CallOptions): Promise<readonly Order[]>;
    /**
     * Makes a key in place of this client's, and shows it once: keep it, and make a client with it. This client goes on
     * with its own key.
     *
     * @param options `graceSeconds`: how long the own key still works, up to 604,800; default: a day
     * @throws InventoryApiError `key_replaced` when a newer key is in use, `insufficient_scope` without `keys:rotate`
     */
    rotateKey(options?: CallOptions & {
        readonly graceSeconds?: number;
    }): Promise<RotatedKey>;
}
/** @throws TypeError for options that are missing, unknown or invalid */
export declare function createInventoryApi(options: InventoryApiOptions): InventoryApi;
export {};
