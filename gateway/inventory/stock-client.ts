/** The inventory service as the gateway sees it: promises, deadlines on every call, errors of the public contract. */
import { type ClientReadableStream, type ServiceError, status } from "@grpc/grpc-js";
import { context } from "@opentelemetry/api";
import { type InventoryChannelOptions, openInventoryChannel } from "../../client/channel.ts";
import { toItem } from "../../client/item.ts";
import type { ListInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Item } from "../../proto/pet.ts";
import { activeTraceparent, clientCall, inSpan } from "../../runtime/spans.ts";
import type { ApiError } from "../http/errors.ts";
import { CheckSession } from "./check-session.ts";
import type { StockSource } from "./list/stock-list.ts";
import { readRemovals } from "./older-removals.ts";
import { Outage } from "./outage.ts";
import { fromServiceError, NotDoneError } from "./status.ts";
import { UpdatePipeline } from "./update-pipeline.ts";
import type { UpdateOutcome, UpdateRequest } from "./updates.ts";

export interface StockClientOptions extends InventoryChannelOptions {
  /** Deadline of an update, from the arrival of its request, and of each part of the answer to a check. */
  readonly callTimeoutMs: number;
  /** Deadline of reading the whole list. */
  readonly loadTimeoutMs: number;
  /** Gets every check at its end. */
  readonly onCheck: (durationMs: number, isAnswered: boolean) => void;
}

export interface StockClient extends StockSource {
  /**
   * Resolves once each update is durable, or has failed. An update that has certainly not happened is tried again in a
   * short outage.
   *
   * @returns for each update, in order, its entry or an error: not_found, precondition_failed; service_unavailable,
   *   timeout or internal_error, after which it may have happened
   */
  update(request: UpdateRequest, caller: UpdateCaller): Promise<readonly (Item | ApiError)[]>;
  /** Updates whose result is still to come. */
  readonly updatesInFlight: number;
  /** Updates so far of which it is not known whether they happened. */
  readonly updatesUnknown: number;
  close(): void;
}

/** The request that updates are for. */
export interface UpdateCaller {
  /** Its arrival, by `performance.now()`: the deadline counts from there, whatever the updates wait for. */
  readonly arrivedMs: number;
  /** False once the caller has left. */
  readonly isWanted: () => boolean;
}

/** @throws Error that says what is wrong with the TLS files */
export function openStockClient(options: StockClientOptions): StockClient {
  const { callTimeoutMs, loadTimeoutMs, onCheck, ...channel } = options;
  const client = openInventoryChannel(channel);
  const pipeline = new UpdatePipeline(() => client.applyUpdates());
  const checks = new CheckSession(() => client.checkInventory(), callTimeoutMs);
  // One for each: while a server is read-only, checks and updates do not end their outages together.
  const [updateOutage, checkOutage] = [new Outage(callTimeoutMs), new Outage(callTimeoutMs)];
  const longReads = new Set<{ cancel(): void }>();

  return {
    get updatesInFlight() {
      return pipeline.inFlight;
    },
    get updatesUnknown() {
      return pipeline.unknown;
    },

    update: async ({ updates: asked }, { arrivedMs, isWanted }) => {
      const outcomes = new Array<UpdateOutcome | undefined>(asked.length).fill(undefined);
      const isOpen = (outcome: UpdateOutcome | undefined) => outcome === undefined || outcome instanceof NotDoneError;
      const attempt = async () => {
        const places = [...outcomes.keys()].filter((i) => isOpen(outcomes[i]));
        const request = { updates: places.map((i) => asked[i]!), traceparent: activeTraceparent() };
        const found = await pipeline.submit(request, arrivedMs + callTimeoutMs, isWanted);
        for (const [i, outcome] of found.entries()) outcomes[places[i]!] = outcome;
        const error = found.find(isOpen) ?? found.find((outcome) => outcome instanceof Error);
        if (error) throw error;
      };
      await inSpan("ApplyUpdates", clientCall, context.active(), () =>
        updateOutage.rideOut(attempt, (error) => error instanceof NotDoneError, isWanted, arrivedMs),
      ).catch(() => {}); // it is an outcome, too
      return outcomes.map((outcome) => (outcome instanceof Error ? fromServiceError(outcome) : outcome!));
    },

    async *load() {
      const deadline = Date.now() + loadTimeoutMs;
      const stream: ClientReadableStream<ListInventoryResponse> = client.listInventory({}, { deadline });
      longReads.add(stream);
      try {
        for await (const { items, epoch, revision } of stream as AsyncIterable<ListInventoryResponse>) {
          yield { position: { epoch, revision }, items: items.map(toItem) };
        }
      } catch (error) {
        throw fromServiceError(error);
      } finally {
        longReads.delete(stream);
        stream.cancel();
      }
    },

    changesAfter: async (position, report) => {
      const startedMs = performance.now();
      let isAnswered = false;
      try {
        const changes = await inSpan("CheckInventory", clientCall, context.active(), () =>
          checkOutage.rideOut(
            // It changes nothing, so it may be repeated.
            () => checks.changesAfter(position, activeTraceparent(), () => report.progress()),
            (error) => (error as ServiceError).code === status.UNAVAILABLE,
            (error) => {
              report.setback(fromServiceError(error));
              return true;
            },
          ),
        );
        isAnswered = true;
        return changes;
      } catch (error) {
        throw fromServiceError(error);
      } finally {
        onCheck(performance.now() - startedMs, isAnswered);
      }
    },

    removedAfter: async (position, max, report) => {
      const stream = client.checkInventory({ deadline: Date.now() + loadTimeoutMs });
      longReads.add(stream);
      try {
        return await inSpan("CheckInventory", clientCall, context.active(), () =>
          readRemovals(stream, position, max, () => report.progress()),
        );
      } catch (error) {
        throw fromServiceError(error);
      } finally {
        longReads.delete(stream);
      }
    },

    close: () => {
      pipeline.close();
      checks.close();
      for (const stream of longReads) stream.cancel(); // closing the channel would let them finish
      client.close();
    },
  };
}
