/** The inventory service with promises, for internal callers. */

import type { ListInventoryResponse, WatchInventoryResponse } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { maxGroupChanges, type Position } from "../proto/pet.ts";
import {
  type Changed,
  type ChangeRequest,
  checkChangeRequest,
  type IdempotencyKey,
  indexOfFailure,
  type QuantityChange,
} from "./change-requests.ts";
import { ChangeSender, checkCaller } from "./change-sender.ts";
import { ChangeSessions } from "./change-sessions.ts";
import { openInventoryChannel } from "./channel.ts";
import { type CheckOptions, Checks } from "./checks.ts";
import {
  type CallOptions,
  callUnary,
  maxTimeoutMs,
  readStream,
  type UnaryMethod,
  unlessAborted,
} from "./grpc-calls.ts";
import type { InventoryClient, InventoryClientOptions, ListOptions } from "./interface.ts";
import { InventoryError, notSent } from "./inventory-error.ts";
import { toPastChange, toWireQuestion } from "./past-changes.ts";
import {
  checkAddress,
  checkAdjustment,
  checkArguments,
  checkArray,
  checkDifferent,
  checkEntry,
  checkExpected,
  checkInt64,
  checkInt64s,
  checkPosition,
  checkStatus,
  checkText,
  toItem,
  toListedItem,
} from "./values.ts";
import { follow } from "./watch.ts";

const defaultTimeoutMs = 5_000;

const closedText = "the client was closed";

/**
 * Makes a client of the service at an address.
 *
 * @throws InventoryError INVALID_ARGUMENT for an address that is no gRPC target, and for TLS files that cannot be used
 */
export function createInventoryClient(options: InventoryClientOptions): InventoryClient {
  const { timeoutMs: ms = defaultTimeoutMs, ...channel } = checkArguments(
    options,
    "address",
    "tls",
    "log",
    "onCertificate",
    "timeoutMs",
  );
  checkAddress(channel.address);
  const defaultMs = Math.min(ms, maxTimeoutMs);
  const stub = openInventoryChannel(channel, ["getInventoryItem", "batchGetInventoryItems", "listChanges"]);
  const sessions = new ChangeSessions(() => stub.applyChanges());
  const sender = new ChangeSender(sessions, defaultMs);
  const checks = new Checks(() => stub.checkInventory(), defaultMs);
  const closed = new AbortController();
  // grpc-js refuses a call on a closed channel with an error that has no status.
  const throwIfClosed = () => {
    if (closed.signal.aborted) throw notSent(closedText, undefined, "CANCELLED");
  };

  const validOptions = (options: Pick<CallOptions, "signal">, ...names: readonly string[]) => {
    throwIfClosed();
    checkArguments(options, ...(names as []));
    options.signal?.throwIfAborted();
  };
  const bounded = (ms = defaultMs) => Math.min(ms, maxTimeoutMs);

  /**
   * Begins a call with its options; `more` names those it takes beside `timeoutMs` and `signal`.
   *
   * @throws InventoryError, or the signal's reason
   */
  const begin = <T extends CallOptions>(options = {} as T, ...more: readonly (keyof T & string)[]) => {
    validOptions(options, "timeoutMs", "signal", ...more);
    return { ...options, timeoutMs: bounded(options.timeoutMs) };
  };
  /** As `begin`, for a call whose answer comes in parts: it takes `silenceTimeoutMs` in place of `timeoutMs`. */
  const beginParts = <T extends ListOptions | CheckOptions>(
    options = {} as T,
    ...more: readonly (keyof T & string)[]
  ) => {
    validOptions(options, "silenceTimeoutMs", "signal", ...more);
    return { ...options, silenceTimeoutMs: bounded(options.silenceTimeoutMs) };
  };
  type Begun = ReturnType<typeof begin<CallOptions>>;
  const call = <Req, Res>(method: UnaryMethod<Req, Res>, request: Req, options: Begun) =>
    callUnary(method.bind(stub), request, options);

  /** Makes changes. @throws InventoryError of the first one that was refused, or the reason of the signal */
  const applyAll = async (request: ChangeRequest, { timeoutMs, signal }: Begun) => {
    const endMs = performance.now() + timeoutMs;
    const mayRetry = () => !signal?.throwIfAborted();
    const caller = { endMs: () => endMs, isWanted: () => !signal?.aborted, mayRetry };
    const outcomes = await unlessAborted(sender.send(request, caller), signal);
    const failed = indexOfFailure(outcomes);
    if (failed !== -1) throw outcomes[failed];
    return outcomes as readonly Changed[];
  };
  const applyOne = async (change: QuantityChange, options: Begun, idempotencyKey?: IdempotencyKey) =>
    (await applyAll({ changes: [change], idempotencyKey }, options))[0]!;

  return {
    get: async (petId, options) =>
      toItem((await call(stub.getInventoryItem, { petId: checkInt64("petId", petId) }, begin(options))).item),

    getMany: async (petIds, options) => {
      const request = { petIds: checkInt64s("petIds", petIds) };
      const { items, missingPetIds } = await call(stub.batchGetInventoryItems, request, begin(options));
      return { items: items.map(toItem), missing: missingPetIds };
    },

    update: async (update, options) => {
      checkArguments(update, "petId", "quantity", "expectedRevision", "idempotencyKey", "reason");
      const { expectedRevision, idempotencyKey, reason } = update;
      const change = { ...checkEntry(update), expectedRevisions: checkExpected(expectedRevision), reason };
      const key = idempotencyKey === undefined ? undefined : { key: checkText("idempotencyKey", idempotencyKey) };
      const { replayed: _, ...item } = await applyOne(change, begin(options), key);
      return item;
    },

    adjust: async (adjustment, options) => {
      const { requestId } = checkArguments(adjustment, "petId", "delta", "requestId", "reason");
      const change = { ...checkAdjustment(adjustment), requestId: checkText("requestId", requestId) };
      const { replayed, ...item } = await applyOne(change, begin(options));
      return { item, replayed };
    },

    adjustMany: async (batch, options) => {
      const { adjustments, requestId } = checkArguments(batch, "adjustments", "requestId");
      const all = checkArray("adjustments", adjustments, maxGroupChanges).map((adjustment, i) => {
        checkArguments(adjustment, "petId", "delta", "expectedRevision", "reason");
        const expectedRevisions = checkExpected(adjustment.expectedRevision);
        return { ...checkAdjustment(adjustment, `adjustments[${i}].`), expectedRevisions };
      });
      const changes = checkDifferent("adjustments", all);
      // Checked, because a missing id would be sent as "undefined": one id for all batches.
      const idempotencyKey = { key: checkText("requestId", requestId) };
      const changed = await applyAll({ changes, idempotencyKey, isAllOrNothing: true }, begin(options));
      const items = changed.map(({ replayed: _, ...item }) => item);
      return { items, replayed: changed.some(({ replayed }) => replayed) };
    },

    apply: async (request, caller) => sender.send(checkChangeRequest(request), checkCaller(caller)),

    get changesInFlight() {
      return sessions.changesInFlight;
    },

    setStatus: async (change, options) => {
      checkArguments(change, "petId", "status", "expectedRevision", "reason");
      const { petId, status, expectedRevision, reason } = change;
      const request = {
        petId: checkInt64("petId", petId),
        status: checkStatus(status),
        expectedRevision: expectedRevision === undefined ? undefined : checkInt64("expectedRevision", expectedRevision),
        reason,
      };
      return toItem((await call(stub.setStatus, request, begin(options))).item);
    },

    create: async (entry, options) => {
      const { status = "available", reason } = checkArguments(entry, "petId", "quantity", "status", "reason");
      const request = { ...checkEntry(entry), status: checkStatus(status), reason };
      return toItem((await call(stub.createInventoryItem, request, begin(options))).item);
    },

    remove: async (petId, options) => {
      const { reason, ...rest } = begin(options, "reason");
      return (await call(stub.removeInventoryItem, { petId: checkInt64("petId", petId), reason }, rest)).revision;
    },

    history: async (question = {}, options) =>
      (await call(stub.listChanges, toWireQuestion(question), begin(options))).changes.map(toPastChange),

    async *list(options) {
      const begun = beginParts<ListOptions>(options, "afterPetId", "withRemoved");
      const { afterPetId, withRemoved = false, signal, silenceTimeoutMs } = begun;
      const open = () => stub.listInventory({ afterPetId });
      const pages = readStream<ListInventoryResponse>(open, signal, silenceTimeoutMs);
      for await (const { epoch, revision, items } of pages) {
        const wanted = withRemoved ? items : items.filter(({ removed }) => !removed);
        yield { position: { epoch, revision }, items: wanted.map(toListedItem) };
      }
    },

    changesAfter: async (position, options) =>
      checks.ask(checkPosition(position), beginParts(options, "maxChanges", "traceparent", "onPart", "onSetback")),

    async *watch(from, options = {}) {
      throwIfClosed();
      const { signal, onBreak } = checkArguments(options, "signal", "onBreak");
      const ended = signal ? AbortSignal.any([signal, closed.signal]) : closed.signal;
      const open = (position: Position) =>
        readStream<WatchInventoryResponse>(() => stub.watchInventory(checkPosition(position)), ended);
      yield* follow(open, from, { signal: ended, onBreak });
    },

    close: () => {
      closed.abort(new InventoryError("CANCELLED", closedText));
      sessions.close();
      checks.close();
      stub.close();
    },
  };
}
