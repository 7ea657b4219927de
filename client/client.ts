import type { ListInventoryResponse, WatchInventoryResponse } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { type CallOptions, callUnary, deadlineIn, readStream, type UnaryMethod } from "./calls.ts";
import { type InventoryChannelOptions, openInventoryChannel } from "./channel.ts";
import { InventoryError } from "./errors.ts";
import { type Item, type PetStatus, type Position, toItem, toWireStatus } from "./item.ts";
import { follow, type WatchEvent, type WatchOptions } from "./watch.ts";

export interface InventoryClientOptions extends InventoryChannelOptions {
  /** Deadline of every call that is not given another, except lists, which have 60,000; default 5,000. */
  readonly timeoutMs?: number | undefined;
}

/** A part of the list, with the position to watch from once the whole list is read. */
export interface Page {
  readonly position: Position;
  readonly items: readonly Item[];
}

/** What there is of the ids that were asked for, both in that order. */
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
 * The inventory service with promises. Every method throws InventoryError, or the reason of its signal.
 *
 * While the service is away, reads and adjustments are tried up to five times within about two seconds. Other changes
 * are not: after an error that leaves it open whether one has happened, only its caller knows whether it is still wanted.
 */
export interface InventoryClient {
  /** One entry. NOT_FOUND when there is none. */
  get(petId: bigint, options?: CallOptions): Promise<Item>;
  /** At most 1,000 entries, as they stand at one moment. */
  getMany(petIds: readonly bigint[], options?: CallOptions): Promise<Found>;
  /** Sets a quantity. NOT_FOUND without an entry, ABORTED when it is not at `expectedRevision`. Durable once resolved. */
  update(
    change: { readonly petId: bigint; readonly quantity: number; readonly expectedRevision?: bigint | undefined },
    options?: CallOptions,
  ): Promise<Item>;
  /**
   * Adds `delta` to a quantity, or takes it away when negative: once for each `requestId`, over all callers, so best a
   * random one that is kept until the answer is there. NOT_FOUND without an entry, FAILED_PRECONDITION when there is
   * less than would be taken (`details.quantity`), OUT_OF_RANGE above 2147483647.
   */
  adjust(
    change: { readonly petId: bigint; readonly delta: number; readonly requestId: string },
    options?: CallOptions,
  ): Promise<Adjusted>;
  /** Sets a status. NOT_FOUND without an entry, ABORTED when it is not at `expectedRevision`. */
  setStatus(
    change: { readonly petId: bigint; readonly status: PetStatus; readonly expectedRevision?: bigint | undefined },
    options?: CallOptions,
  ): Promise<Item>;
  /** Makes an entry, available unless told otherwise. ALREADY_EXISTS when there is one. */
  create(
    entry: { readonly petId: bigint; readonly quantity: number; readonly status?: PetStatus | undefined },
    options?: CallOptions,
  ): Promise<Item>;
  /** Removes an entry. NOT_FOUND when there is none. @returns the revision in which it was gone */
  remove(petId: bigint, options?: CallOptions): Promise<bigint>;
  /** Every entry, ordered by petId, in pages. The first page is empty and tells the position. */
  list(options?: CallOptions): AsyncIterable<Page>;
  /**
   * What changes after a position, without an end and without a deadline. It goes on by itself after a break, from
   * where it was; the first event tells that it stands. After a reset it ends.
   */
  watch(from: Position, options?: WatchOptions): AsyncIterable<WatchEvent>;
  /**
   * Ends its watches. A call that was sent finishes, one that still waits to be sent ends with UNAVAILABLE, and all that
   * come later with CANCELLED.
   */
  close(): void;
}

const defaultTimeoutMs = 5_000;
const defaultListTimeoutMs = 60_000;

/** @throws Error that says what is wrong with the TLS files */
export function createInventoryClient({
  timeoutMs = defaultTimeoutMs,
  ...channel
}: InventoryClientOptions): InventoryClient {
  const stub = openInventoryChannel(channel, [
    "getInventoryItem",
    "batchGetInventoryItems",
    "listInventory",
    "adjustInventory",
  ]);
  const closed = new AbortController();
  // grpc-js refuses a call on a closed channel with an error that has no status.
  const throwIfClosed = () => closed.signal.throwIfAborted();
  const call = <Req, Res>(method: UnaryMethod<Req, Res>, request: Req, options: CallOptions | undefined) => {
    throwIfClosed();
    return callUnary(method.bind(stub), request, {
      timeoutMs: options?.timeoutMs ?? timeoutMs,
      signal: options?.signal,
    });
  };

  return {
    get: async (petId, options) => toItem((await call(stub.getInventoryItem, { petId }, options)).item),

    getMany: async (petIds, options) => {
      const { items, missingPetIds } = await call(stub.batchGetInventoryItems, { petIds: [...petIds] }, options);
      return { items: items.map(toItem), missing: missingPetIds };
    },

    update: async ({ petId, quantity, expectedRevision }, options) =>
      toItem((await call(stub.updateInventory, { petId, quantity, expectedRevision }, options)).item),

    adjust: async ({ petId, delta, requestId }, options) => {
      // Without types it may be missing, and would be sent as the text "undefined": one id for all adjustments.
      if (typeof requestId !== "string") throw new InventoryError("INVALID_ARGUMENT", "requestId must be a string");
      const { item, replayed } = await call(stub.adjustInventory, { petId, delta, requestId }, options);
      return { item: toItem(item), replayed };
    },

    setStatus: async ({ petId, status, expectedRevision }, options) =>
      toItem((await call(stub.setStatus, { petId, status: toWireStatus(status), expectedRevision }, options)).item),

    create: async ({ petId, quantity, status }, options) =>
      toItem((await call(stub.createInventoryItem, { petId, quantity, status: toWireStatus(status) }, options)).item),

    remove: async (petId, options) => (await call(stub.removeInventoryItem, { petId }, options)).revision,

    async *list({ timeoutMs = defaultListTimeoutMs, signal } = {}) {
      throwIfClosed();
      const deadline = deadlineIn(timeoutMs);
      const open = () => stub.listInventory({}, { deadline });
      for await (const { epoch, revision, items } of readStream<ListInventoryResponse>(open, signal)) {
        yield { position: { epoch, revision }, items: items.map(toItem) };
      }
    },

    watch: (from, { signal, onBreak } = {}) => {
      const ended = signal ? AbortSignal.any([signal, closed.signal]) : closed.signal;
      const open = (position: Position) =>
        readStream<WatchInventoryResponse>(() => stub.watchInventory(position), ended);
      return follow(open, from, { signal: ended, onBreak });
    },

    close: () => {
      closed.abort(new InventoryError("CANCELLED", "the client was closed"));
      stub.close();
    },
  };
}
