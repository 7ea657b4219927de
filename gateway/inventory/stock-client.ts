/** The inventory service as the gateway sees it: traces, and errors of the public contract. */
import { context } from "@opentelemetry/api";
import type { Changed, ChangeRequest } from "../../client/change-requests.ts";
import type { ChangeCaller } from "../../client/change-sender.ts";
import { createInventoryClient, type InventoryChannelOptions, InventoryError } from "../../client/index.ts";
import { activeTraceparent, clientCall, inSpan } from "../../runtime/spans.ts";
import type { ApiError } from "../http/api-error.ts";
import type { StockSource } from "./list/stock-source.ts";
import { fromServiceError } from "./public-errors.ts";

export interface StockClientOptions extends InventoryChannelOptions {
  /** How long updates without a key may take, and each part of a list or of the answer to a check. */
  readonly callTimeoutMs: number;
  /** How long updates with a key are repeated. */
  readonly keyedTimeoutMs: number;
  /** Gets every check at its end. */
  readonly onCheck: (durationMs: number, isAnswered: boolean) => void;
}

/** The request that updates are for. */
export interface UpdateCaller extends Pick<ChangeCaller, "isWanted" | "mayRetry"> {
  /** Its arrival, by `performance.now()`: deadlines count from there, whatever the updates wait for. */
  readonly arrivedMs: number;
}

export interface StockClient extends StockSource {
  /**
   * Resolves once each update is durable, or has failed.
   *
   * @returns for each update, in order, its entry or an error: not_found, precondition_failed, idempotency_key_reused;
   *   service_unavailable, timeout or internal_error, after which it may have happened
   */
  update(request: Omit<ChangeRequest, "traceparent">, caller: UpdateCaller): Promise<readonly (Changed | ApiError)[]>;
  /** Repeats updates with a key for no longer than those without one: for the begin of a stop. */
  endRepeats(): void;
  /** Updates whose result is still to come. */
  readonly updatesInFlight: number;
  /** Updates so far of which it is not known whether they happened. Those with a key do not count: a repeat finds out. */
  readonly updatesUnknown: number;
  close(): void;
}

/** @throws Error that says what is wrong with the TLS files */
export function openStockClient(options: StockClientOptions): StockClient {
  const { callTimeoutMs, keyedTimeoutMs, onCheck, ...channel } = options;
  const client = createInventoryClient({ ...channel, timeoutMs: callTimeoutMs });
  const closed = new AbortController();
  let unknown = 0;
  let endingSinceMs = Number.POSITIVE_INFINITY;

  return {
    get updatesInFlight() {
      return client.changesInFlight;
    },
    get updatesUnknown() {
      return unknown;
    },

    update: ({ changes, idempotencyKey }, { arrivedMs, ...caller }) =>
      inSpan("ApplyChanges", clientCall, context.active(), async () => {
        const deadlineMs = idempotencyKey
          ? () => Math.min(arrivedMs + keyedTimeoutMs, Math.max(arrivedMs, endingSinceMs) + callTimeoutMs)
          : () => arrivedMs + callTimeoutMs;
        const request = { changes, idempotencyKey, traceparent: activeTraceparent() };
        const outcomes = await client.apply(request, { ...caller, deadlineMs });
        return outcomes.map((outcome) => {
          if (!(outcome instanceof InventoryError)) return outcome;
          if (outcome.mayHaveHappened && !idempotencyKey) unknown += 1;
          return fromServiceError(outcome);
        });
      }),

    endRepeats: () => {
      endingSinceMs = performance.now();
    },

    async *load(afterPetId) {
      try {
        yield* client.list({ afterPetId, withRemoved: true, timeoutMs: callTimeoutMs, signal: closed.signal });
      } catch (error) {
        throw fromServiceError(error);
      }
    },

    changesAfter: async (position, report) => {
      const startedMs = performance.now();
      let isAnswered = false;
      try {
        const changes = await inSpan("CheckInventory", clientCall, context.active(), () =>
          client.changesAfter(position, {
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
