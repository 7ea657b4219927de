/** The client of the public API for consumers in TypeScript and JavaScript. */

import { changesOf, entryOf, listOf } from "./answer-bodies.ts";
import {
  toGraceSeconds,
  toHistoryLimit,
  toHours,
  toIdempotencyKey,
  toIfMatch,
  toLimit,
  toOptions,
  toPetId,
  toPetIds,
  toQuantity,
  toReason,
  toSince,
  toWaitSeconds,
} from "./api-arguments.ts";
import { readBody, type SentEntry, withIds, withPetId } from "./exact-json.ts";
import { followStock } from "./follow.ts";
import type {
  CallOptions,
  InventoryApi,
  InventoryApiOptions,
  InventoryList,
  ManyOptions,
  UpdateOptions,
  UpdateResult,
} from "./inventory-api.ts";
import { InventoryApiError } from "./inventory-api-error.ts";
import { Pace } from "./pace.ts";
import { type Answer, type ApiRequest, createSender } from "./request-sender.ts";
import type {
  InventoryChanges,
  InventoryEntry,
  InventoryHistory,
  Order,
  Pet,
  RateLimitStatus,
  RotatedKey,
  UpdatedEntry,
  Usage,
} from "./types.ts";
import { type Adjustment, type EntryUpdate, toAdjustmentsBody, toRequests } from "./update-batches.ts";

export type { ChangesEvent, FollowEvent, StockEvent } from "./follow.ts";
export type * from "./inventory-api.ts";
export { type ErrorCode, InventoryApiError } from "./inventory-api-error.ts";
export type * from "./types.ts";
export type { Adjustment, EntryUpdate } from "./update-batches.ts";

/** Maximum entries that are remembered with their tags: the latest ones. */
const maxRemembered = 1_000;

/** @throws TypeError for options that are missing, unknown or invalid */
export function createInventoryApi(options: InventoryApiOptions): InventoryApi {
  const {
    baseUrl,
    apiKey,
    fetch = globalThis.fetch,
  } = toOptions("createInventoryApi", options, ...(["baseUrl", "apiKey", "fetch"] as const));
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

  async function* pages(options: CallOptions & { readonly limit?: number } = {}) {
    const { limit = 1_000, signal } = toOptions("pages", options, "limit", "signal");
    for (let query = `?limit=${toLimit(limit)}`; ; ) {
      const page = listOf(await send({ path: `/inventory${query}`, signal }));
      yield page;
      if (page.length < limit) return;
      query = `?limit=${limit}&after=${page.at(-1)!.petId}`;
    }
  }

  async function get(petId: bigint | number, options: CallOptions = {}): Promise<InventoryEntry> {
    const { signal } = toOptions("get", options, "signal");
    const known = entries.get(toPetId(petId));
    const answer = await send({ path: `/inventory/${toPetId(petId)}`, headers: unless(known), signal });
    return remember(answer.status === 304 ? known! : entryOf(answer));
  }

  async function update(petId: bigint | number, quantity: number, options: UpdateOptions = {}): Promise<UpdatedEntry> {
    toOptions("update", options, "ifMatch", "reason", "idempotencyKey", "signal");
    const ifMatch = toIfMatch(options.ifMatch);
    const headers = {
      ...updateHeaders(toIdempotencyKey(options.idempotencyKey)),
      ...(ifMatch && { "If-Match": ifMatch }),
    };
    const path = `/inventory/${toPetId(petId)}`;
    const body = JSON.stringify({ quantity: toQuantity(quantity), reason: toReason(options.reason) });
    const answer = await send({ method: "PATCH", path, headers, body, signal: options.signal });
    return updatedBy(answer, remember(entryOf(answer)));
  }

  async function updateMany(updates: readonly EntryUpdate[], options: ManyOptions = {}) {
    const { idempotencyKey, signal } = toOptions("updateMany", options, "idempotencyKey", "signal");
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

  async function adjustMany(adjustments: readonly Adjustment[], options: ManyOptions = {}) {
    const { idempotencyKey, signal } = toOptions("adjustMany", options, "idempotencyKey", "signal");
    const body = toAdjustmentsBody(adjustments);
    const headers = updateHeaders(toIdempotencyKey(idempotencyKey));
    const answer = await send({ method: "POST", path: "/inventory/adjustments", headers, body, signal });
    const adjusted = readBody(answer, (sent: SentEntry[]) => sent.map(withPetId<InventoryEntry>));
    return adjusted.map((entry) => updatedBy(answer, remember(entry)));
  }

  async function adjust(petId: bigint | number, delta: number, options: UpdateOptions = {}) {
    const { ifMatch, reason, ...ofMany } = toOptions(
      "adjust",
      options,
      "ifMatch",
      "reason",
      "idempotencyKey",
      "signal",
    );
    return (await adjustMany([{ petId, delta, ifMatch, reason }], ofMany))[0]!;
  }

  type HistoryRequest = CallOptions & { readonly limit?: number; readonly before?: string | null };

  async function history(petId: bigint | number, options: HistoryRequest = {}) {
    const { limit, before, signal } = toOptions("history", options, "limit", "before", "signal");
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
    const held = seconds > 0 && { headers: { Prefer: `wait=${seconds}` }, maxHoldMs: seconds * 1_000 };
    const answer = await send({ ...request, ...held, path });
    return changesOf(answer);
  }

  async function rateLimit(options: CallOptions = {}): Promise<RateLimitStatus> {
    const { signal } = toOptions("rateLimit", options, "signal");
    return readBody(await send({ path: "/rate_limit", isUncharged: true, signal }), (status: RateLimitStatus) => {
      if (!status.ban) pace.endBan();
      return status;
    });
  }

  return {
    list: async (options = {}) => {
      const { petIds, signal } = toOptions("list", options, "petIds", "signal");
      if (petIds === undefined) return await list({ signal });
      return listOf(await send({ path: `/inventory?petIds=${toPetIds(petIds)}`, signal }));
    },
    pages,
    get,
    update,
    updateMany,
    adjust,
    adjustMany,
    history,
    changes: async (since, options = {}) =>
      await changes(since, toOptions("changes", options, "waitSeconds", "signal")),
    follow: (options = {}) => {
      const { signal } = toOptions("follow", options, "signal");
      const request = { isPatient: true, signal };
      return followStock(
        { list: () => list(request), changes: (since, waitSeconds) => changes(since, { ...request, waitSeconds }) },
        signal,
      );
    },
    pet: async (petId, options = {}) => {
      const { signal } = toOptions("pet", options, "signal");
      return readBody(await send({ path: `/pets/${toPetId(petId)}`, signal }), withIds<Pet>);
    },
    orders: async (options = {}) => {
      const { signal } = toOptions("orders", options, "signal");
      return readBody(await send({ path: "/store/orders", signal }), (sent: object[]) => sent.map(withIds<Order>));
    },
    rateLimit,
    usage: async (options = {}) => {
      const { hours, signal } = toOptions("usage", options, "hours", "signal");
      const query = hours === undefined ? "" : `?hours=${toHours(hours)}`;
      return readBody(await send({ path: `/usage${query}`, isUncharged: true, signal }), (sent: Usage) => sent);
    },
    rotateKey: async (options = {}) => {
      const { graceSeconds, signal } = toOptions("rotateKey", options, "graceSeconds", "signal");
      const body = graceSeconds === undefined ? "{}" : JSON.stringify({ graceSeconds: toGraceSeconds(graceSeconds) });
      const headers = { "Content-Type": "application/json" };
      const answer = await send({ method: "POST", path: "/keys/rotate", headers, body, signal });
      return readBody(answer, (sent: RotatedKey) => sent);
    },
  };
}

/** An entry after an update, marked where an earlier request with the same key had made it. */
function updatedBy({ headers }: Answer, entry: InventoryEntry): UpdatedEntry {
  return headers.get("idempotency-replayed") === "true" ? { ...entry, replayed: true } : entry;
}

const updateHeaders = (key: string) => ({ "Content-Type": "application/json", "Idempotency-Key": key });

function unless(known: { readonly etag: string } | undefined): Readonly<Record<string, string>> {
  return known?.etag ? { "If-None-Match": known.etag } : {};
}
