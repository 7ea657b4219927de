/** What the client of the inventory service offers. */
import type { Item, ItemInput, ListedItem, PetStatus, Position } from "../proto/pet.ts";
import type { ChangeOutcome, ChangeRequest } from "./change-requests.ts";
import type { ChangeCaller } from "./change-sender.ts";
import type { InventoryChannelOptions } from "./channel.ts";
import type { CheckOptions, StockChanges } from "./checks.ts";
import type { CallOptions } from "./grpc-calls.ts";
import type { HistoryQuestion, PastChange } from "./past-changes.ts";
import type { WatchEvent, WatchOptions } from "./watch.ts";

export interface InventoryClientOptions extends InventoryChannelOptions {
  /** Default deadline of calls but `apply` and `watch`, and of each page of a list; 5,000 if not set. */
  readonly timeoutMs?: number | undefined;
}

/** A page of the list. Once the whole list has been read, watch from this position. */
export interface Page {
  readonly position: Position;
  readonly items: readonly ListedItem[];
}

export interface ListOptions {
  /**
   * The petId after which the list begins, to go on with a list that broke off. Watch from the position of the list
   * that broke off.
   */
  readonly afterPetId?: bigint | undefined;
  /** Whether removed entries come, too, as far as they are not forgotten. */
  readonly withRemoved?: boolean;
  /** The longest wait for a page. */
  readonly silenceTimeoutMs?: number | undefined;
  /** Ends the list, which then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
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

/** An adjustment among others that are made all or none. */
export interface Adjustment {
  readonly petId: bigint;
  /** Negative to take away; not 0. */
  readonly delta: number;
  /** The entry has to be at one of these revisions, of which there are 1 to 20. */
  readonly expectedRevision?: bigint | readonly bigint[] | undefined;
  /** Why: up to 200 characters. */
  readonly reason?: string | undefined;
}

/** The entries after adjustments that were made together. */
export interface AdjustedMany {
  /** As the adjustments left them, in their order. */
  readonly items: readonly Item[];
  /** An earlier call with this request id made the adjustments; this one changed nothing. */
  readonly replayed: boolean;
}

/**
 * The inventory service. Calls throw InventoryError, or the reason of their signal. Wrong types and unknown names of
 * arguments are refused with INVALID_ARGUMENT before anything is sent.
 *
 * Updates and adjustments of all callers share messages. While the service is away, those with an `idempotencyKey` or a
 * `requestId` are sent again within their time; an update without an `idempotencyKey` only if it has certainly not
 * happened, and until the outage is as old as the client's time-out. Reads of entries and of the history are tried
 * up to five times, with waits of up to 2.8 s in all. Other changes are sent once: after an unknown outcome only the
 * caller knows whether it still wants them.
 */
export interface InventoryClient {
  /** One entry. NOT_FOUND when there is none. */
  get(petId: bigint, options?: CallOptions): Promise<Item>;
  /** At most 1,000 entries, all as they were at one moment. */
  getMany(petIds: readonly bigint[], options?: CallOptions): Promise<Found>;
  /**
   * Sets a quantity; durable once resolved. NOT_FOUND without an entry. `expectedRevision` may name up to 20 revisions:
   * ABORTED when the entry is at none of them. With a random `idempotencyKey` the update happens once within at least
   * 24 hours: a repeat with the same key gets the first result, whatever has become of the entry. INVALID_ARGUMENT when
   * another update of this entry has used the key.
   */
  update(
    change: {
      readonly petId: bigint;
      readonly quantity: number;
      readonly expectedRevision?: bigint | readonly bigint[] | undefined;
      readonly idempotencyKey?: string | undefined;
      readonly reason?: string | undefined;
    },
    options?: CallOptions,
  ): Promise<Item>;
  /**
   * Adds `delta`, which may be negative, to a quantity: once within at least 24 hours for each `requestId`. All
   * callers share one set of ids. Take a random one and keep it until the answer has arrived. NOT_FOUND without an
   * entry, FAILED_PRECONDITION when the quantity would be negative (`details.quantity` has the present one),
   * OUT_OF_RANGE above 2147483647.
   */
  adjust(
    change: {
      readonly petId: bigint;
      readonly delta: number;
      readonly requestId: string;
      readonly reason?: string | undefined;
    },
    options?: CallOptions,
  ): Promise<Adjusted>;
  /**
   * Makes 1 to 100 adjustments of different entries, all or none: once within at least 24 hours for each `requestId`,
   * whose repeats name the same adjustments in the same order. No read of one moment shows some of them without the
   * others; pages of `list` and events of `watch` may. The error is that of the adjustment which was refused
   * (`details.pet_id`): NOT_FOUND, FAILED_PRECONDITION, OUT_OF_RANGE, and ABORTED when its entry is at none of its
   * expected revisions.
   */
  adjustMany(
    batch: { readonly adjustments: readonly Adjustment[]; readonly requestId: string },
    options?: CallOptions,
  ): Promise<AdjustedMany>;
  /**
   * Makes the changes of one request on behalf of this program's own caller, as the gateway does: each alone, or all or
   * nothing. Rejects only before it has sent anything: with INVALID_ARGUMENT for what cannot be sent, or with what
   * `endMs` or `isWanted` throws.
   *
   * @returns an outcome for each change, in order
   */
  apply(request: ChangeRequest, caller: ChangeCaller): Promise<readonly ChangeOutcome[]>;
  /** Changes in attempts that are under way. */
  readonly changesInFlight: number;
  /** Sets a status. NOT_FOUND without an entry, ABORTED when it is not at `expectedRevision`. */
  setStatus(
    change: {
      readonly petId: bigint;
      readonly status: PetStatus;
      readonly expectedRevision?: bigint | undefined;
      readonly reason?: string | undefined;
    },
    options?: CallOptions,
  ): Promise<Item>;
  /** Makes an entry; its status is `available` by default. ALREADY_EXISTS when there is one. */
  create(
    entry: Omit<ItemInput, "status"> & {
      readonly status?: PetStatus | undefined;
      readonly reason?: string | undefined;
    },
    options?: CallOptions,
  ): Promise<Item>;
  /** Removes an entry. NOT_FOUND when there is none. @returns the revision in which it was gone */
  remove(petId: bigint, options?: CallOptions & { readonly reason?: string | undefined }): Promise<bigint>;
  /**
   * Changes of the past, the newest first: of one entry, or of all. NOT_FOUND when there is neither an entry nor a
   * change of it, FAILED_PRECONDITION when the service keeps no history.
   */
  history(question?: HistoryQuestion, options?: CallOptions): Promise<readonly PastChange[]>;
  /** Every entry, ordered by petId, in pages. The first page is empty and has the position. */
  list(options?: ListOptions): AsyncIterable<Page>;
  /**
   * The changes after a position: all that were committed before this call, unless `maxChanges` cuts them off. Ask
   * again only after the answer. Each part of a long answer may take the time of a call.
   */
  changesAfter(position: Position, options?: CheckOptions): Promise<StockChanges>;
  /**
   * The changes after a position, as they happen, without a deadline. The first event says that the watch is open.
   * After a break it continues where it was. It ends after a reset, by its signal, with `close`, or with an error that
   * another try would not mend.
   */
  watch(from: Position, options?: WatchOptions): AsyncIterable<WatchEvent>;
  /**
   * Ends the watches. A call that was sent finishes, but for `changesAfter`, which ends with CANCELLED. A call that was
   * not sent yet ends with UNAVAILABLE or CANCELLED, and every later one with CANCELLED.
   */
  close(): void;
}
