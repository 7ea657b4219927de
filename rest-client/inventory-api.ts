/** What the client offers its callers, and what it takes from them. */
import type { FollowEvent } from "./follow.ts";
import type { InventoryApiError } from "./inventory-api-error.ts";
import type {
  InventoryChanges,
  InventoryEntry,
  InventoryHistory,
  InventoryItem,
  Order,
  Pet,
  RateLimitStatus,
  RotatedKey,
  UpdatedEntry,
  Usage,
} from "./types.ts";
import type { Adjustment, EntryUpdate } from "./update-batches.ts";

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
export type UpdateResult =
  | UpdatedEntry
  | { readonly petId: bigint; readonly error: Pick<InventoryApiError, "code" | "message" | "status"> };

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
  pages(options?: CallOptions & { readonly limit?: number }): AsyncGenerator<InventoryList, void, undefined>;
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
  history(
    petId: bigint | number,
    options?: CallOptions & { readonly limit?: number; readonly before?: string | null },
  ): Promise<InventoryHistory>;
  /**
   * What has changed since the `etag` of a list or of earlier changes.
   *
   * @param options `waitSeconds`: how long the answer may wait for a change, in seconds up to 90; default: not at all
   * @throws InventoryApiError `changes_unavailable`: read the list again
   */
  changes(since: string, options?: CallOptions & { readonly waitSeconds?: number }): Promise<InventoryChanges>;
  /** The stock, then every difference, once and in order; the stock again where differences are no longer known. */
  follow(options?: CallOptions): AsyncGenerator<FollowEvent, never, undefined>;
  /** What is left of the limits. The account's limits do not count this, and banned keys may ask. */
  rateLimit(options?: CallOptions): Promise<RateLimitStatus>;
  /** Requests of the account in the last hours, up to 168. The account's limits do not count this. */
  usage(options?: CallOptions & { readonly hours?: number }): Promise<Usage>;
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
  rotateKey(options?: CallOptions & { readonly graceSeconds?: number }): Promise<RotatedKey>;
}
