/** The inventory service with promises, for internal callers. */

import type { ListInventoryResponse, WatchInventoryResponse } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Position } from "../proto/pet.ts";
import {
  type Changed,
  type ChangeRequest,
  type IdempotencyKey,
  type QuantityChange,
  refusedIn,
} from "./change-requests.ts";
import { ChangeSender } from "./change-sender.ts";
import { ChangeSessions } from "./change-sessions.ts";
import { openInventoryChannel } from "./channel.ts";
import { Checks } from "./checks.ts";
import { boundedMs, type CallOptions, callUnary, readStream, type UnaryMethod, unlessAborted } from "./grpc-calls.ts";
import type { InventoryClient, InventoryClientOptions } from "./interface.ts";
import { InventoryError } from "./inventory-error.ts";
import { toPastChange, toWireQuestion } from "./past-changes.ts";
import {
  checkAddress,
  checkArray,
  checkDelta,
  checkEntry,
  checkInt64,
  checkInt64s,
  checkNames,
  checkPosition,
  checkReason,
  checkRevisions,
  checkStatus,
  checkText,
  toItem,
  toListedItem,
} from "./values.ts";
import { follow } from "./watch.ts";

const defaultTimeoutMs = 5_000;

/**
 * Makes a client of the service at an address.
 *
 * @throws InventoryError INVALID_ARGUMENT for an address that is none, and for TLS files that cannot be used
 */
export function createInventoryClient({
  timeoutMs = defaultTimeoutMs,
  ...channel
}: InventoryClientOptions): InventoryClient {
  checkAddress(channel.address);
  const stub = openInventoryChannel(channel, ["getInventoryItem", "batchGetInventoryItems", "listChanges"]);
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

  /** Makes changes. @throws InventoryError of the first one that was refused, or the reason of the signal */
  const applyAll = async (request: ChangeRequest, { timeoutMs: ownMs, signal }: CallOptions) => {
    throwIfClosed();
    signal?.throwIfAborted();
    const endMs = performance.now() + boundedMs(ownMs ?? timeoutMs);
    const mayRetry = () => !signal?.throwIfAborted();
    const caller = { deadlineMs: () => endMs, isWanted: () => !signal?.aborted, mayRetry };
    const outcomes = await unlessAborted(sender.send(request, caller), signal);
    const refused = refusedIn(outcomes);
    if (refused !== -1) throw outcomes[refused];
    return outcomes as readonly Changed[];
  };
  const applyOne = async (change: QuantityChange, options: CallOptions, idempotencyKey?: IdempotencyKey) =>
    (await applyAll({ changes: [change], idempotencyKey }, options))[0]!;

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
      checkNames(update, "petId", "quantity", "expectedRevision", "idempotencyKey", "reason");
      const { petId, quantity, expectedRevision, idempotencyKey } = update;
      const reason = checkReason(update);
      const change = {
        ...checkEntry({ petId, quantity }),
        expectedRevisions: checkRevisions(expectedRevision),
        reason,
      };
      const key = idempotencyKey === undefined ? undefined : { key: checkText("idempotencyKey", idempotencyKey) };
      const { isReplayed: _, ...item } = await applyOne(change, options, key);
      return item;
    },

    adjust: async (adjustment, options = {}) => {
      checkNames(options, "timeoutMs", "signal");
      const { requestId } = checkNames(adjustment, "petId", "delta", "requestId", "reason");
      // "undefined" would be one id for all adjustments
      const change = { ...checkDelta(adjustment), requestId: checkText("requestId", requestId) };
      const { isReplayed, ...item } = await applyOne(change, options);
      return { item, replayed: isReplayed };
    },

    adjustMany: async (batch, options = {}) => {
      checkNames(options, "timeoutMs", "signal");
      const { adjustments, requestId } = checkNames(batch, "adjustments", "requestId");
      const changes = checkArray("adjustments", adjustments).map((adjustment) => {
        checkNames(adjustment, "petId", "delta", "expectedRevision", "reason");
        return { ...checkDelta(adjustment), expectedRevisions: checkRevisions(adjustment.expectedRevision) };
      });
      const idempotencyKey = { key: checkText("requestId", requestId) };
      const changed = await applyAll({ changes, idempotencyKey, isAllOrNothing: true }, options);
      const items = changed.map(({ isReplayed: _, ...item }) => item);
      return { items, replayed: changed.some(({ isReplayed }) => isReplayed) };
    },

    apply: (request, caller) => sender.send(request, caller),

    get changesInFlight() {
      return sessions.changesInFlight;
    },

    setStatus: async (change, options) => {
      const { petId, status, expectedRevision } = checkNames(change, "petId", "status", "expectedRevision", "reason");
      const request = {
        petId: checkInt64("petId", petId),
        status: checkStatus(status),
        expectedRevision: expectedRevision === undefined ? undefined : checkInt64("expectedRevision", expectedRevision),
        reason: checkReason(change),
      };
      return toItem((await call(stub.setStatus, request, options)).item);
    },

    create: async (entry, options) => {
      const { petId, quantity, status } = checkNames(entry, "petId", "quantity", "status", "reason");
      const made = { ...checkEntry({ petId, quantity }), status: checkStatus(status ?? "available") };
      const request = { ...made, reason: checkReason(entry) };
      return toItem((await call(stub.createInventoryItem, request, options)).item);
    },

    remove: async (petId, { reason, ...options } = {}) => {
      const request = { petId: checkInt64("petId", petId), reason: checkReason({ reason }) };
      return (await call(stub.removeInventoryItem, request, options)).revision;
    },

    history: async (question = {}, options) =>
      (await call(stub.listChanges, toWireQuestion(question), options)).changes.map(toPastChange),

    async *list(options = {}) {
      throwIfClosed();
      const { afterPetId, withRemoved = false, timeoutMs: ownMs, signal } = options;
      const silenceMs = boundedMs(ownMs ?? timeoutMs);
      const pages = readStream<ListInventoryResponse>(() => stub.listInventory({ afterPetId }), signal, silenceMs);
      for await (const { epoch, revision, items } of pages) {
        const wanted = withRemoved ? items : items.filter(({ removed }) => !removed);
        yield { position: { epoch, revision }, items: wanted.map(toListedItem) };
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
