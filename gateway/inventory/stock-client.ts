/** The inventory service as the gateway sees it: traces, and errors of the public contract. */
import { context } from "@opentelemetry/api";
import { type Changed, type ChangeRequest, indexOfFailure } from "../../client/change-requests.ts";
import type { ChangeCaller } from "../../client/change-sender.ts";
import { createInventoryClient, type InventoryChannelOptions, InventoryError } from "../../client/index.ts";
import type { PastChange } from "../../client/past-changes.ts";
import { activeTraceparent, clientSpan, inSpan } from "../../runtime/spans.ts";
import type { ApiError } from "../http/api-error.ts";
import type { AskedAdjustment } from "./input.ts";
import type { StockSource } from "./list/load-list.ts";
import { fromAdjustmentError, fromServiceError } from "./public-errors.ts";

export interface StockClientOptions extends InventoryChannelOptions {
  /** The longest time for an update without an Idempotency-Key, and for each part of a list or of a check's answer. */
  readonly callTimeoutMs: number;
  /** How long updates with an Idempotency-Key are repeated. */
  readonly keyedTimeoutMs: number;
  /** Called at the end of every check, which is the question what has changed since a position. */
  readonly onCheck: (durationMs: number, isAnswered: boolean) => void;
}

/** The caller that updates are for: the sender of one request. */
export interface UpdateCaller extends Pick<ChangeCaller, "isWanted" | "mayRetry"> {
  /** When its request was complete, by `performance.now()`: deadlines count from there, however long updates wait. */
  readonly completeMs: number;
}

/** The identity of a request: the account and API key of its caller, its id, and its idempotency key if it has one. */
export type RequestIdentity = Pick<ChangeRequest, "idempotencyKey" | "actor" | "originRequestId">;

export interface StockClient extends StockSource {
  /**
   * Resolves once each update is durable, or has failed.
   *
   * @returns for each update, in order, its entry or an error: not_found, precondition_failed, idempotency_key_reused;
   *   service_unavailable, timeout or internal_error, after which it may have happened
   */
  update(
    request: Pick<ChangeRequest, "changes"> & RequestIdentity,
    caller: UpdateCaller,
  ): Promise<readonly (Changed | ApiError)[]>;
  /**
   * Resolves once all adjustments are durable.
   *
   * @throws ApiError. After not_found, insufficient_stock, quantity_overflow, precondition_failed and
   *   idempotency_key_reused none has happened; after service_unavailable, timeout and internal_error all may have
   */
  adjust(
    adjustments: readonly AskedAdjustment[],
    identity: RequestIdentity,
    caller: UpdateCaller,
  ): Promise<readonly Changed[]>;
  /** Changes of an entry, the newest first. @throws ApiError not_found, also where no history is kept */
  history(petId: bigint, beforeRevision: bigint | undefined, limit: number): Promise<readonly PastChange[]>;
  /** From now on repeats updates with a key for at most `callTimeoutMs` more. To be called when a stop begins. */
  endRepeats(): void;
  /** Updates and adjustments in attempts that are under way. */
  readonly changesInFlight: number;
  /**
   * Updates so far of which it is not known whether they happened. Those with a key do not count: a repeat finds out.
   */
  readonly updatesUnknown: number;
  close(): void;
}

/**
 * Changes at which the answer to a check is cut off: the list takes an answer over in one turn of the event loop. The
 * message that reaches the number is still taken whole.
 */
const maxChanges = 10_000;

/** @throws Error that says what is wrong with the TLS files */
export function openStockClient(options: StockClientOptions): StockClient {
  const { callTimeoutMs, keyedTimeoutMs, onCheck, ...channel } = options;
  const client = createInventoryClient({ ...channel, timeoutMs: callTimeoutMs });
  const closed = new AbortController();
  let updatesUnknown = 0;
  let endingSinceMs = Number.POSITIVE_INFINITY;

  /** Sends changes, and repeats those with a key for longer. */
  const applyChanges = (request: Omit<ChangeRequest, "traceparent">, { completeMs, ...caller }: UpdateCaller) =>
    inSpan("ApplyChanges", clientSpan, context.active(), async () => {
      const endMs = request.idempotencyKey
        ? () => Math.min(completeMs + keyedTimeoutMs, Math.max(completeMs, endingSinceMs) + callTimeoutMs)
        : () => completeMs + callTimeoutMs;
      return await client.apply({ ...request, traceparent: activeTraceparent() }, { ...caller, endMs });
    });

  return {
    get changesInFlight() {
      return client.changesInFlight;
    },
    get updatesUnknown() {
      return updatesUnknown;
    },

    update: async (request, caller) => {
      const outcomes = await applyChanges(request, caller);
      return outcomes.map((outcome, i) => {
        if (!(outcome instanceof InventoryError)) return outcome;
        if (outcome.mayHaveHappened && !request.idempotencyKey) updatesUnknown += 1;
        return fromServiceError(outcome, request.changes[i]!.petId);
      });
    },

    adjust: async (adjustments, identity, caller) => {
      const changes = adjustments.map(({ petId, delta, precondition, reason }) => {
        return { petId, delta, expectedRevisions: precondition?.revisions, reason };
      });
      const outcomes = await applyChanges({ ...identity, changes, isAllOrNothing: true }, caller);
      const failed = indexOfFailure(outcomes);
      if (failed === -1) return outcomes as readonly Changed[];
      throw fromAdjustmentError(outcomes[failed] as InventoryError, adjustments[failed]!);
    },

    history: async (petId, beforeRevision, limit) => {
      try {
        return await inSpan("ListChanges", clientSpan, context.active(), () =>
          client.history({ petId, beforeRevision, limit }),
        );
      } catch (error) {
        throw fromServiceError(error, petId);
      }
    },

    endRepeats: () => {
      endingSinceMs = performance.now();
    },

    async *load(afterPetId) {
      try {
        const timing = { silenceTimeoutMs: callTimeoutMs, signal: closed.signal };
        yield* client.list({ afterPetId, withRemoved: true, ...timing });
      } catch (error) {
        throw fromServiceError(error);
      }
    },

    changesAfter: async (position, report) => {
      const startedMs = performance.now();
      let isAnswered = false;
      try {
        const changes = await inSpan("CheckInventory", clientSpan, context.active(), () =>
          client.changesAfter(position, {
            maxChanges,
            traceparent: activeTraceparent(),
            onPart: () => report.progress(),
            onSetback: (error) => report.setback(fromServiceError(error)),
          }),
        );
        isAnswered = true;
        return changes;
      } catch (error) {
        throw fromServiceError(error);
      } finally {
        onCheck(performance.now() - startedMs, isAnswered);
      }
    },

    close: () => {
      closed.abort(new InventoryError("CANCELLED", "the gateway was closed"));
      client.close();
    },
  };
}
