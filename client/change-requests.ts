/** Changes of quantities as callers ask for them, and what becomes of them. */
import type {
  ChangeGroup,
  ChangeResult,
  Change as WireChange,
  IdempotencyKey as WireKey,
} from "../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Item } from "../proto/pet.ts";
import { type InventoryError, refusalOf, toInventoryError } from "./inventory-error.ts";
import { toItem } from "./item.ts";

/** A change of the quantity of one entry. */
export type QuantityChange =
  | {
      readonly petId: bigint;
      /** 0 to 2147483647. */
      readonly quantity: number;
      /** The update happens only if the entry is still at one of these revisions: 1 to 20. */
      readonly expectedRevisions?: readonly bigint[] | undefined;
    }
  | {
      readonly petId: bigint;
      /** Negative to take away; not 0. */
      readonly delta: number;
      /** Makes the adjustment happen once. */
      readonly requestId: string;
    };

/** Makes updates happen once: a repeat with the same key gets the first result. */
export interface IdempotencyKey {
  /** The account whose key it is; by default none. */
  readonly account?: string | undefined;
  readonly key: string;
  /** Equal for repeats, and different for every other request with this key; by default made of each update. */
  readonly fingerprint?: string | undefined;
}

/** Changes that a caller sends together. Each of them stands alone. */
export interface ChangeRequest {
  /** 1 to 100; with a key each is an update of another entry. */
  readonly changes: readonly QuantityChange[];
  readonly idempotencyKey?: IdempotencyKey | undefined;
  /** A W3C trace context. */
  readonly traceparent?: string | undefined;
}

/** An entry as a change left it. */
export interface Changed extends Item {
  /** An earlier request with the same key or request id made the change. */
  readonly isReplayed: boolean;
}

/** What became of a change: its entry, once that is durable, or an error. */
export type ChangeOutcome = Changed | InventoryError;

/** Whether a request may be sent again when it is not known whether it has happened. */
export function happensOnce({ changes, idempotencyKey }: ChangeRequest): boolean {
  return idempotencyKey !== undefined || changes.every((change) => "requestId" in change);
}

/** A request for the service. @param deadlineMs by the service's count, from when it accepted the stream */
export function toWireGroup(
  { changes, idempotencyKey: key, traceparent }: ChangeRequest,
  deadlineMs: number,
): ChangeGroup {
  return { changes: changes.map(toWireChange), deadlineMs, idempotencyKey: key && toWireKey(key), traceparent };
}

function toWireChange(change: QuantityChange): WireChange {
  const { petId } = change;
  if ("delta" in change) {
    const { delta, requestId } = change;
    return { petId, quantity: undefined, delta, requestId, expectedRevisions: [] };
  }
  const { quantity, expectedRevisions = [] } = change;
  return { petId, quantity, delta: undefined, requestId: "", expectedRevisions: expectedRevisions as bigint[] };
}

function toWireKey({ account = "", key, fingerprint = "" }: IdempotencyKey): WireKey {
  return { account, key, fingerprint };
}

/** What the service says of a change. */
export function toOutcome({ item, replayed, refusal }: ChangeResult): ChangeOutcome {
  if (refusal) return refusalOf(refusal);
  try {
    return { ...toItem(item), isReplayed: replayed };
  } catch (error) {
    return toInventoryError(error); // an entry that this client cannot read
  }
}
