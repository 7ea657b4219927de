/** The inventory service with promises, for internal callers. */

import type { ListInventoryResponse, WatchInventoryResponse } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { type Item, maxQuantity, type PetStatus, type Position } from "../proto/pet.ts";
import {
  checkAddress,
  checkEntry,
  checkInt64,
  checkInt64s,
  checkInteger,
  checkNames,
  checkPosition,
  checkRevisions,
  checkStatus,
  checkText,
} from "./arguments.ts";
import {
  boundedMs,
  type CallOptions,
  callUnary,
  deadlineIn,
  readStream,
  type UnaryMethod,
  unlessAborted,
} from "./calls.ts";
import { type ChangeCaller, ChangeSender } from "./change-sender.ts";
import { ChangeSessions } from "./change-sessions.ts";
import type { ChangeOutcome, ChangeRequest } from "./changes.ts";
import { type InventoryChannelOptions, openInventoryChannel } from "./channel.ts";
import { type CheckOptions, Checks, type StockChanges } from "./checks.ts";
import { InventoryError } from "./errors.ts";
import { toItem } from "./item.ts";
import { follow, type WatchEvent, type WatchOptions } from "./watch.ts";

export interface InventoryClientOptions extends InventoryChannelOptions {
  /** Deadline of every call without one of its own; default 5,000. Lists have 60,000. */
  readonly timeoutMs?: number | undefined;
}

/** A part of the list, with the position to watch from after the whole list has been read. */
export interface Page {
  readonly position: Position;
  readonly items: readonly Item[];
}

/** The result of asking for several ids: both parts in the order of the request. */
export interface Found {
  readonly items: readonly Item[];
  /** The ids without an entry. */
  readonly missing: readonly bigint[];
}

/** An entry after an adjustment. */
export interface Adjusted {
  /** The entry as the adjustment left it. */
  readonly item: Item;
  /** An earlier call with this request id made the adjustment; this one changed nothing. */
  readonly replayed: boolean;
}

/**
 * The inventory service. Every method throws InventoryError, or the reason of its signal.
 *
 * Updates and adjustments of all callers share messages. While the service is away, those are sent again, within their
 * time, that have certainly not happened or that happen once. Reads of entries are tried up to five times within about
 * two seconds. Other changes are not: when it is not known whether one has happened, only its caller knows whether it
 * is still wanted.
 */
export interface InventoryClient {
  /** One entry. NOT_FOUND when there is none. */
  get(petId: bigint, options?: CallOptions): Promise<Item>;
  /** At most 1,000 entries, all as they were at one moment. */
  getMany(petIds: readonly bigint[], options?: CallOptions): Promise<Found>;
  /**
   * Sets a quantity; durable once resolved. NOT_FOUND without an entry. `expectedRevision` may name up to 20 revisions:
   * ABORTED when the entry is at none of them. With a random `idempotencyKey` the update happens once: a repeat with
   * the same key gets the first result, whatever has become of the entry. INVALID_ARGUMENT for the key of another
   * update of the entry.
   */
  update(
    change: {
      readonly petId: bigint;
      readonly quantity: number;
      readonly expectedRevision?: bigint | readonly bigint[] | undefined;
      readonly idempotencyKey?: string | undefined;
    },
    options?: CallOptions,
  ): Promise<Item>;
  /**
   * Adds `delta`, which may be negative, to a quantity: once for each `requestId` of all callers. Take a random one and
   * keep it until the answer has arrived. NOT_FOUND without an entry, FAILED_PRECONDITION when the quantity would be
   * negative (`details.quantity` has the present one), OUT_OF_RANGE above 2147483647.
   */
  adjust(
    change: { readonly petId: bigint; readonly delta: number; readonly requestId: string },
    options?: CallOptions,
  ): Promise<Adjusted>;
  /**
   * Makes changes of one request, each of which stands alone. Never rejects.
   *
   * @returns an outcome for each change, in order
   */
  apply(request: ChangeRequest, caller: ChangeCaller): Promise<readonly ChangeOutcome[]>;
  /** Changes whose outcome is still to come. */
  readonly changesInFlight: number;
  /** Sets a status. NOT_FOUND without an entry, ABORTED when it is not at `expectedRevision`. */
  setStatus(
    change: { readonly petId: bigint; readonly status: PetStatus; readonly expectedRevision?: bigint | undefined },
    options?: CallOptions,
  ): Promise<Item>;
  /** Makes an entry; its status is `available` by default. ALREADY_EXISTS when there is one. */
  create(
    entry: { readonly petId: bigint; readonly quantity: number; readonly status?: PetStatus | undefined },
    options?: CallOptions,
  ): Promise<Item>;
  /** Removes an entry. NOT_FOUND when there is none. @returns the revision in which it was gone */
  remove(petId: bigint, options?: CallOptions): Promise<bigint>;
  /** Every entry, ordered by petId, in pages. The first page is empty and has the position. */
  list(options?: CallOptions): AsyncIterable<Page>;
  /**
   * What has changed after a position, in everything that was committed before this call. Ask again only after the
   * answer. For each part of a long answer it waits for as long as for a call.
   */
  changesAfter(position: Position, options?: CheckOptions): Promise<StockChanges>;
  /**
   * What changes after a position, without an end and without a deadline. After a break it continues where it was. The
   * first event says that the watch is open. After a reset it ends.
   */
  watch(from: Position, options?: WatchOptions): AsyncIterable<WatchEvent>;
  /**
   * Ends the watches. A call that was sent finishes, one that was not sent yet ends with UNAVAILABLE or CANCELLED, and
   * every later one with CANCELLED.
   */
  close(): void;
}

const defaultTimeoutMs = 5_000;
const defaultListTimeoutMs = 60_000;

/**
 * Makes a client of the service at an address.
 *
 * @throws InventoryError INVALID_ARGUMENT for an address that is none; Error that says what is wrong with the TLS files
 */
export function createInventoryClient({
  timeoutMs = defaultTimeoutMs,
  ...channel
}: InventoryClientOptions): InventoryClient {
  checkAddress(channel.address);
  const stub = openInventoryChannel(channel, ["getInventoryItem", "batchGetInventoryItems"]);
  const sessions = new ChangeSessions(() => stub.applyChanges());
  const sender = new ChangeSender(sessions, timeoutMs);
  const checks = new Checks(() => stub.checkInventory(), timeoutMs);
  const closed = new AbortController();
  // grpc-js refuses a call on a closed channel with an error that has no status.
  const throwIfClosed = () => closed.signal.throwIfAborted();
  const call = <Req, Res>(method: UnaryMethod<Req, Res>, request: Req, options: CallOptions | undefined) => {
    throwIfClosed();
    checkNames(options ?? {}, "timeoutMs", "signal");
    return callUnary(method.bind(stub), request, {
      timeoutMs: options?.timeoutMs ?? timeoutMs,
      signal: options?.signal,
    });
  };

  /** Makes one change. @throws InventoryError, or the reason of the signal */
  const applyOne = async (request: ChangeRequest, { timeoutMs: ownMs, signal }: CallOptions) => {
    throwIfClosed();
    signal?.throwIfAborted();
    const endMs = performance.now() + boundedMs(ownMs ?? timeoutMs);
    const mayRepeat = () => !signal?.throwIfAborted();
    const caller = { deadlineMs: () => endMs, isWanted: () => !signal?.aborted, mayRepeat };
    const [outcome] = await unlessAborted(sender.send(request, caller), signal);
    if (outcome instanceof InventoryError) throw outcome;
    return outcome!;
  };

  return {
    get: async (petId, options) =>
      toItem((await call(stub.getInventoryItem, { petId: checkInt64("petId", petId) }, options)).item),

    getMany: async (petIds, options) => {
      const request = { petIds: checkInt64s("petIds", petIds) };
      const { items, missingPetIds } = await call(stub.batchGetInventoryItems, request, options);
      return { items: items.map(toItem), missing: missingPetIds };
    },

    update: async (update, options = {}) => {
      checkNames(options, "timeoutMs", "signal");
      checkNames(update, "petId", "quantity", "expectedRevision", "idempotencyKey");
      const { petId, quantity, expectedRevision, idempotencyKey } = update;
      const change = { ...checkEntry({ petId, quantity }), expectedRevisions: checkRevisions(expectedRevision) };
      const key = idempotencyKey === undefined ? undefined : { key: checkText("idempotencyKey", idempotencyKey) };
      const { isReplayed: _, ...item } = await applyOne({ changes: [change], idempotencyKey: key }, options);
      return item;
    },

    adjust: async (adjustment, options = {}) => {
      checkNames(options, "timeoutMs", "signal");
      const { petId, delta, requestId } = checkNames(adjustment, "petId", "delta", "requestId");
      const change = {
        petId: checkInt64("petId", petId),
        delta: checkInteger("delta", delta, -maxQuantity - 1, maxQuantity),
        requestId: checkText("requestId", requestId), // "undefined" would be one id for all adjustments
      };
      const { isReplayed, ...item } = await applyOne({ changes: [change] }, options);
      return { item, replayed: isReplayed };
    },

    apply: (request, caller) => sender.send(request, caller),

    get changesInFlight() {
      return sessions.unanswered;
    },

    setStatus: async (change, options) => {
      const { petId, status, expectedRevision } = checkNames(change, "petId", "status", "expectedRevision");
      const request = {
        petId: checkInt64("petId", petId),
        status: checkStatus(status),
        expectedRevision: expectedRevision === undefined ? undefined : checkInt64("expectedRevision", expectedRevision),
      };
      return toItem((await call(stub.setStatus, request, options)).item);
    },

    create: async (entry, options) => {
      const { petId, quantity, status } = checkNames(entry, "petId", "quantity", "status");
      const request = { ...checkEntry({ petId, quantity }), status: checkStatus(status ?? "available") };
      return toItem((await call(stub.createInventoryItem, request, options)).item);
    },

    remove: async (petId, options) =>
      (await call(stub.removeInventoryItem, { petId: checkInt64("petId", petId) }, options)).revision,

    async *list({ timeoutMs = defaultListTimeoutMs, signal } = {}) {
      throwIfClosed();
      const deadline = deadlineIn(timeoutMs);
      const open = () => stub.listInventory({}, { deadline });
      for await (const { epoch, revision, items } of readStream<ListInventoryResponse>(open, signal)) {
        yield { position: { epoch, revision }, items: items.map(toItem) };
      }
    },

    changesAfter: (position, options) => checks.ask(checkPosition(position), options),

    watch: (from, { signal, onBreak } = {}) => {
      const ended = signal ? AbortSignal.any([signal, closed.signal]) : closed.signal;
      const open = (position: Position) =>
        readStream<WatchInventoryResponse>(() => stub.watchInventory(checkPosition(position)), ended);
      return follow(open, from, { signal: ended, onBreak });
    },

    close: () => {
      closed.abort(new InventoryError("CANCELLED", "the client was closed"));
      sessions.close();
      checks.close();
      stub.close();
    },
  };
}
