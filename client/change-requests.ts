/** Changes of quantities as callers ask for them, and what becomes of them. */
import type {
  ChangeGroup,
  ChangeResult,
  Change as WireChange,
  IdempotencyKey as WireIdempotencyKey,
} from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { type Item, maxGroupChanges } from "../proto/pet.ts";
import { invariant } from "../runtime/invariant.ts";
import { InventoryError, refusalOf, toInventoryError } from "./inventory-error.ts";
import {
  checkAbsent,
  checkAdjustment,
  checkArguments,
  checkArray,
  checkEntry,
  checkRevisions,
  checkText,
  toItem,
} from "./values.ts";

interface AnyQuantityChange {
  readonly petId: bigint;
  /** The change happens only if the entry is still at one of these revisions, of which there are 1 to 20. */
  readonly expectedRevisions?: readonly bigint[] | undefined;
  /** Why, for the ledger: up to 200 characters. */
  readonly reason?: string | undefined;
}

/** A change of the quantity of one entry. */
export type QuantityChange =
  | (AnyQuantityChange & {
      /** 0 to 2147483647. */
      readonly quantity: number;
      readonly delta?: undefined;
      /** Not for an update: that happens once by an `idempotencyKey`. */
      readonly requestId?: undefined;
    })
  | (AnyQuantityChange & {
      readonly quantity?: undefined;
      /** Negative to take away; not 0. */
      readonly delta: number;
      /**
       * Makes the adjustment happen once. Required without an `idempotencyKey`, refused beside one. It is not the id of
       * an HTTP request, which is `originRequestId`.
       */
      readonly requestId?: string | undefined;
    });

/** Makes changes happen once: a repeat with the same key gets the first result. */
export interface IdempotencyKey {
  /** The account whose key it is; by default none. */
  readonly account?: string | undefined;
  readonly key: string;
  /**
   * Equal in every repeat, different in any other request with this key. By default the service hashes each change, or
   * all of them together where they are all or nothing.
   */
  readonly fingerprint?: string | undefined;
}

/** Changes that a caller sends together. */
export interface ChangeRequest {
  /** 1 to 100. With a key, or when they are all or nothing, each names a different entry. */
  readonly changes: readonly QuantityChange[];
  readonly idempotencyKey?: IdempotencyKey | undefined;
  /** Whether one refusal refuses all. Where quantities and deltas are together, that needs a key. */
  readonly isAllOrNothing?: boolean;
  /** For the ledger: the account that the changes are for, and its key's id; by default the caller of the service. */
  readonly actor?: { readonly account: string; readonly keyId: string } | undefined;
  /** For the ledger: the id of the request that the changes are for. */
  readonly originRequestId?: string | undefined;
  /** A W3C trace context. */
  readonly traceparent?: string | undefined;
}

/**
 * Checks and copies a request that a caller has put together. One that cannot be encoded would spoil the message that
 * it shares with others. The copy stays as it was checked, whatever the caller does to its own.
 *
 * @throws InventoryError INVALID_ARGUMENT
 */
export function checkChangeRequest(request: ChangeRequest): ChangeRequest {
  const own = ["changes", "idempotencyKey", "isAllOrNothing", "actor", "originRequestId", "traceparent"] as const;
  const { changes, idempotencyKey, actor, ...others } = checkArguments(request, ...own);
  return {
    ...others,
    changes: checkArray("changes", changes, maxGroupChanges).map(checkChange),
    idempotencyKey: idempotencyKey === undefined ? undefined : checkKey(idempotencyKey),
    actor: actor === undefined ? undefined : checkActor(actor),
  };
}

function checkKey(given: IdempotencyKey): IdempotencyKey {
  const idempotencyKey = checkArguments(given, "account", "key", "fingerprint");
  checkText("key", idempotencyKey.key);
  return idempotencyKey;
}

function checkActor(given: NonNullable<ChangeRequest["actor"]>): ChangeRequest["actor"] {
  const { account, keyId } = checkArguments(given, "account", "keyId");
  return { account: checkText("account", account), keyId: checkText("keyId", keyId) };
}

function checkChange(given: QuantityChange): QuantityChange {
  const change = checkArguments(given, "petId", "quantity", "delta", "expectedRevisions", "requestId", "reason");
  if (change.delta === undefined) {
    checkEntry(change);
    checkAbsent("requestId", change.requestId, "beside quantity: use an idempotencyKey");
  } else {
    checkAdjustment(change);
    checkAbsent("quantity", change.quantity, "beside delta: use one of them");
  }
  if (change.expectedRevisions === undefined) return change;
  return { ...change, expectedRevisions: checkRevisions("expectedRevisions", change.expectedRevisions) };
}

/** An entry as a change left it. */
export interface Changed extends Item {
  /** An earlier request with the same key or request id made the change. */
  readonly replayed: boolean;
}

/** What became of a change: its entry, once that is durable, or an error. */
export type ChangeOutcome = Changed | InventoryError;

/** Finds the change that made its whole request fail. @returns its index, -1 for none */
export function indexOfFailure(outcomes: readonly ChangeOutcome[]): number {
  const itself = outcomes.findIndex((outcome) => isFailure(outcome) && outcome.errorReason !== "GROUP_REFUSED");
  return itself === -1 ? outcomes.findIndex(isFailure) : itself;
}

function isFailure(outcome: ChangeOutcome): outcome is InventoryError {
  return outcome instanceof InventoryError;
}

/** Whether a request may be sent again when it is not known whether it has happened. */
export function happensOnce({ changes, idempotencyKey }: ChangeRequest): boolean {
  return idempotencyKey !== undefined || changes.every(({ requestId }) => requestId !== undefined);
}

/**
 * Makes the message of a request.
 *
 * @param deadlineMs time from the acceptance of the stream by the service to the end of the caller's wait
 */
export function toWireGroup(request: ChangeRequest, deadlineMs: number): ChangeGroup {
  const { changes, idempotencyKey: key, traceparent, isAllOrNothing = false, actor, originRequestId } = request;
  return {
    changes: changes.map(toWireChange),
    deadlineMs,
    idempotencyKey: key && toWireIdempotencyKey(key),
    traceparent,
    allOrNothing: isAllOrNothing,
    account: actor?.account,
    keyId: actor?.keyId,
    originRequestId,
  };
}

function toWireChange(change: QuantityChange): WireChange {
  const { petId, quantity, delta, requestId = "", expectedRevisions = [], reason } = change;
  return { petId, quantity, delta, requestId, expectedRevisions: expectedRevisions as bigint[], reason };
}

function toWireIdempotencyKey({ account = "", key, fingerprint = "" }: IdempotencyKey): WireIdempotencyKey {
  return { account, key, fingerprint };
}

/** What the service says of each change. @throws InvariantError for an answer that is not about these changes */
export function toOutcomes(changes: readonly QuantityChange[], results: readonly ChangeResult[]): ChangeOutcome[] {
  const isOwn = ({ item }: ChangeResult, i: number) => item === undefined || item.petId === changes[i]?.petId;
  const isWhole = results.length === changes.length && results.every(isOwn);
  invariant(isWhole, "the service answers each change, with its own entry");
  return results.map(toOutcome);
}

function toOutcome({ item, replayed, refusal }: ChangeResult): ChangeOutcome {
  if (refusal) return refusalOf(refusal);
  try {
    return { ...toItem(item), replayed };
  } catch (error) {
    return toInventoryError(error); // an entry that this client cannot read
  }
}
