/** The client of the public API for consumers in TypeScript and JavaScript. */
import { toHours, toIfMatch, toKey, toPetId, toQuantity, toSince, toWaitSeconds } from "./api-arguments.ts";
import { readBody, type SentEntry, withPetId } from "./exact-json.ts";
import { type FollowEvent, followStock } from "./follow.ts";
import { InventoryApiError } from "./inventory-api-error.ts";
import { Pace } from "./pace.ts";
import { type Answer, type ApiRequest, createSender } from "./request-sender.ts";
import type { BulkResult, InventoryChanges, InventoryItem, RateLimitStatus, Usage } from "./types.ts";
import { toRequests, type UpdateEntry } from "./update-batches.ts";

export type { ChangesEvent, FollowEvent, StockEvent } from "./follow.ts";
export { InventoryApiError } from "./inventory-api-error.ts";
export type * from "./types.ts";
export type { UpdateEntry } from "./update-batches.ts";

export interface InventoryApiOptions {
  /** Base address, which ends in `/v1`; in a page of the API's own origin it may be `/v1` alone. */
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
}

export interface InventoryEntry extends InventoryItem {
  /** For `ifMatch`; empty where a proxy removes the `ETag`. */
  readonly etag: string;
}

/** The entry after an update; `replayed` where an earlier one with the same key had made it. */
export interface UpdatedEntry extends InventoryEntry {
  readonly replayed?: boolean;
}

/** What became of one of many updates. */
export type UpdateResult =
  | BulkResult
  | { readonly petId: bigint; readonly error: Pick<InventoryApiError, "code" | "message" | "status"> };

/** Every entry, in the order of petId. */
export type InventoryList = readonly InventoryItem[] & {
  /** The tag of this list, for `changes`. */
  readonly etag: string;
};

export interface InventoryApi {
  /** Every entry. A list that has not changed is not sent again. */
  list(options?: CallOptions): Promise<InventoryList>;
  /** One entry. @throws InventoryApiError `not_found` */
  get(petId: bigint | number, options?: CallOptions): Promise<InventoryEntry>;
  /** Sets a quantity. @throws InventoryApiError `not_found`; `precondition_failed` when `ifMatch` does not hold */
  update(petId: bigint | number, quantity: number, options?: UpdateOptions): Promise<UpdatedEntry>;
  /**
   * Sets many quantities, each by itself. A request carries up to a hundred of them in up to 16 KiB. The results are in
   * the order of the entries.
   *
   * @throws InventoryApiError when no result is known; a later failure is the result of its entries and of all after
   * them, which are not sent
   */
  updateMany(entries: readonly UpdateEntry[], options?: Omit<UpdateOptions, "ifMatch">): Promise<UpdateResult[]>;
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
}

/** Entries with a tag that are remembered, the latest. */
const maxRemembered = 1_000;

/** @throws TypeError for an invalid base address or key */
export function createInventoryApi({ baseUrl, apiKey, fetch = globalThis.fetch }: InventoryApiOptions): InventoryApi {
  const pace = new Pace();
  const send = createSender({ baseUrl, apiKey, fetch, pace });
  const entries = new Map<bigint, InventoryEntry>();
  let latest: InventoryList | undefined;

  const remember = (entry: InventoryEntry): InventoryEntry => {
    entries.delete(entry.petId);
    entries.set(entry.petId, entry);
    if (entries.size > maxRemembered) entries.delete(entries.keys().next().value!);
    return entry;
  };

  async function list(request: Pick<ApiRequest, "signal" | "isPatient"> = {}): Promise<InventoryList> {
    const known = latest;
    const answer = await send({ ...request, path: "/inventory", headers: unless(known) });
    if (answer.status === 304) return known!;
    const items = readBody(answer, (sent: SentEntry[]) => sent.map(withPetId<InventoryItem>));
    latest = Object.defineProperty(items, "etag", { value: etagOf(answer) }) as InventoryItem[] & { etag: string };
    return latest;
  }

  async function get(petId: bigint | number, { signal }: CallOptions = {}): Promise<InventoryEntry> {
    const known = entries.get(toPetId(petId));
    const answer = await send({ path: `/inventory/${toPetId(petId)}`, headers: unless(known), signal });
    return remember(answer.status === 304 ? known! : entryOf(answer));
  }

  async function update(petId: bigint | number, quantity: number, options: UpdateOptions = {}): Promise<UpdatedEntry> {
    const ifMatch = toIfMatch(options.ifMatch);
    const headers = { ...updateHeaders(toKey(options.idempotencyKey)), ...(ifMatch && { "If-Match": ifMatch }) };
    const path = `/inventory/${toPetId(petId)}`;
    const body = JSON.stringify({ quantity: toQuantity(quantity) });
    const answer = await send({ method: "PATCH", path, headers, body, signal: options.signal });
    const isReplayed = answer.headers.get("idempotency-replayed") === "true";
    const entry = remember(entryOf(answer));
    return isReplayed ? { ...entry, replayed: true } : entry;
  }

  async function updateMany(updates: readonly UpdateEntry[], options: Omit<UpdateOptions, "ifMatch"> = {}) {
    const { idempotencyKey, signal } = options;
    const results: UpdateResult[] = [];
    for (const { start, key, body } of toRequests(updates, idempotencyKey)) {
      const headers = updateHeaders(key);
      try {
        const answer = await send({ method: "POST", path: "/inventory/updates", headers, body, signal });
        results.push(...readBody(answer, (sent: SentEntry[]) => sent.map(withPetId<UpdateResult>)));
      } catch (error) {
        if (start === 0 || !(error instanceof InventoryApiError)) throw error;
        const { code, message, status } = error;
        const failed = updates
          .slice(start)
          .map(({ petId }) => ({ petId: toPetId(petId), error: { code, message, status } }));
        return [...results, ...failed];
      }
    }
    for (const result of results) {
      if ("error" in result) continue;
      const { replayed: _, ...entry } = result;
      remember(entry);
    }
    return results;
  }

  type ChangesRequest = Pick<ApiRequest, "signal" | "isPatient"> & { readonly waitSeconds?: number };

  async function changes(since: string, { waitSeconds, ...request }: ChangesRequest = {}): Promise<InventoryChanges> {
    const path = `/inventory/changes?since=${encodeURIComponent(toSince(since))}`;
    const seconds = toWaitSeconds(waitSeconds);
    const held = seconds > 0 && { headers: { Prefer: `wait=${seconds}` }, heldMs: seconds * 1_000 };
    const answer = await send({ ...request, ...held, path });
    return readBody(answer, ({ changed, removed, ...rest }: SentChanges) => ({
      ...rest,
      changed: changed.map(withPetId<InventoryEntry>),
      removed: removed.map(BigInt),
    }));
  }

  async function rateLimit({ signal }: CallOptions = {}): Promise<RateLimitStatus> {
    return readBody(await send({ path: "/rate_limit", isFree: true, signal }), (status: RateLimitStatus) => {
      if (status.ban === null) pace.endBan();
      return status;
    });
  }

  return {
    list: ({ signal }: CallOptions = {}) => list({ signal }),
    get,
    update,
    updateMany,
    changes: (since, { waitSeconds, signal } = {}) => changes(since, { waitSeconds, signal }),
    follow: ({ signal } = {}) => {
      const request = { isPatient: true, signal };
      return followStock(
        { list: () => list(request), changes: (since, waitSeconds) => changes(since, { ...request, waitSeconds }) },
        signal,
      );
    },
    rateLimit,
    usage: async ({ hours, signal } = {}) =>
      readBody(
        await send({ path: `/usage${hours === undefined ? "" : `?hours=${toHours(hours)}`}`, isFree: true, signal }),
        (sent: Usage) => sent,
      ),
  };
}

interface SentChanges {
  readonly etag: string;
  readonly changed: SentEntry[];
  readonly removed: (number | string)[];
}

const updateHeaders = (key: string) => ({ "Content-Type": "application/json", "Idempotency-Key": key });

function unless(known: { readonly etag: string } | undefined): Readonly<Record<string, string>> {
  return known?.etag ? { "If-None-Match": known.etag } : {};
}

function etagOf({ headers }: Answer): string {
  return headers.get("etag") ?? "";
}

function entryOf(answer: Answer): InventoryEntry {
  return { ...readBody(answer, withPetId<InventoryItem>), etag: etagOf(answer) };
}
