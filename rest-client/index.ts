/** The client of the public API for consumers in TypeScript and JavaScript. */
import {
  toHistoryLimit,
  toHours,
  toIfMatch,
  toKey,
  toLimit,
  toPetId,
  toPetIds,
  toQuantity,
  toReason,
  toSince,
  toWaitSeconds,
} from "./api-arguments.ts";
import { readBody, type SentEntry, withPetId } from "./exact-json.ts";
import { followStock } from "./follow.ts";
import type {
  CallOptions,
  InventoryApi,
  InventoryApiOptions,
  InventoryEntry,
  InventoryList,
  ManyOptions,
  UpdatedEntry,
  UpdateOptions,
  UpdateResult,
} from "./inventory-api.ts";
import { InventoryApiError } from "./inventory-api-error.ts";
import { Pace } from "./pace.ts";
import { type Answer, type ApiRequest, createSender } from "./request-sender.ts";
import type { InventoryChanges, InventoryHistory, InventoryItem, RateLimitStatus, Usage } from "./types.ts";
import { type Adjustment, toAdjustmentsBody, toRequests, type UpdateEntry } from "./update-batches.ts";

export type { ChangesEvent, FollowEvent, StockEvent } from "./follow.ts";
export type * from "./inventory-api.ts";
export { InventoryApiError } from "./inventory-api-error.ts";
export type * from "./types.ts";
export type { Adjustment, UpdateEntry } from "./update-batches.ts";

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
    latest = listOf(answer);
    return latest;
  }

  async function* pages({ limit = 1_000, signal }: CallOptions & { readonly limit?: number } = {}) {
    for (let query = `?limit=${toLimit(limit)}`; ; ) {
      const page = listOf(await send({ path: `/inventory${query}`, signal }));
      yield page;
      if (page.length < limit) return;
      query = `?limit=${limit}&after=${page.at(-1)!.petId}`;
    }
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
    const body = JSON.stringify({ quantity: toQuantity(quantity), reason: toReason(options.reason) });
    const answer = await send({ method: "PATCH", path, headers, body, signal: options.signal });
    const isReplayed = answer.headers.get("idempotency-replayed") === "true";
    const entry = remember(entryOf(answer));
    return isReplayed ? { ...entry, replayed: true } : entry;
  }

  async function updateMany(updates: readonly UpdateEntry[], options: ManyOptions = {}) {
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

  async function adjustMany(adjustments: readonly Adjustment[], { idempotencyKey, signal }: ManyOptions = {}) {
    const body = toAdjustmentsBody(adjustments);
    const headers = updateHeaders(toKey(idempotencyKey));
    const answer = await send({ method: "POST", path: "/inventory/adjustments", headers, body, signal });
    const isReplayed = answer.headers.get("idempotency-replayed") === "true";
    const adjusted = readBody(answer, (sent: SentEntry[]) => sent.map(withPetId<InventoryEntry>)).map(remember);
    return adjusted.map((entry): UpdatedEntry => (isReplayed ? { ...entry, replayed: true } : entry));
  }

  async function adjust(petId: bigint | number, delta: number, { ifMatch, reason, ...options }: UpdateOptions = {}) {
    return (await adjustMany([{ petId, delta, ifMatch, reason }], options))[0]!;
  }

  type HistoryRequest = CallOptions & { readonly limit?: number; readonly before?: string | null };

  async function history(petId: bigint | number, { limit, before, signal }: HistoryRequest = {}) {
    const query = new URLSearchParams();
    if (limit !== undefined) query.set("limit", String(toHistoryLimit(limit)));
    if (before) query.set("before", before);
    const path = `/inventory/${toPetId(petId)}/history?${query}`;
    return readBody(await send({ path, signal }), (sent: InventoryHistory) => sent);
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
      if (!status.ban) pace.endBan();
      return status;
    });
  }

  return {
    list: async ({ petIds, signal } = {}) =>
      petIds === undefined
        ? await list({ signal })
        : listOf(await send({ path: `/inventory?petIds=${toPetIds(petIds)}`, signal })),
    pages,
    get,
    update,
    updateMany,
    adjust,
    adjustMany,
    history,
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

function listOf(answer: Answer): InventoryList {
  const items = readBody(answer, (sent: SentEntry[]) => sent.map(withPetId<InventoryItem>));
  return Object.defineProperty(items, "etag", { value: etagOf(answer) }) as InventoryItem[] & { etag: string };
}

function entryOf(answer: Answer): InventoryEntry {
  return { ...readBody(answer, withPetId<InventoryItem>), etag: etagOf(answer) };
}
