/** The inventory service as the gateway sees it: promises, deadlines on every call, errors of the public contract. */
import { type ClientReadableStream, type ServiceError, status } from "@grpc/grpc-js";
import { context } from "@opentelemetry/api";
import { type InventoryChannelOptions, openInventoryChannel } from "../../client/channel.ts";
import { toItem } from "../../client/item.ts";
import type { ListInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { activeTraceparent, clientCall, inSpan } from "../../runtime/spans.ts";
import { CheckSession } from "./check-session.ts";
import type { CheckReport, StockSource } from "./list/stock-list.ts";
import { readRemovals } from "./older-removals.ts";
import { Outage } from "./outage.ts";
import { fromServiceError, serviceError } from "./status.ts";
import { UpdatePipeline } from "./update-pipeline.ts";
import { createUpdateSender, type SendUpdates } from "./update-sender.ts";

export interface StockClientOptions extends InventoryChannelOptions {
  /** Deadline of an update, from the arrival of its request, and of each part of the answer to a check. */
  readonly callTimeoutMs: number;
  /** How long updates with an idempotency key are repeated, from the arrival of their request. */
  readonly keyedTimeoutMs: number;
  /** Deadline of reading the whole list. */
  readonly loadTimeoutMs: number;
  /** Gets every check at its end. */
  readonly onCheck: (durationMs: number, isAnswered: boolean) => void;
}

export interface StockClient extends StockSource {
  readonly update: SendUpdates;
  /** Repeats updates with a key no longer than those without one: for the begin of a stop. */
  endRepeats(): void;
  /** Updates whose result is still to come. */
  readonly updatesInFlight: number;
  /** Updates so far of which it is not known whether they happened. */
  readonly updatesUnknown: number;
  close(): void;
}

/** @throws Error that says what is wrong with the TLS files */
export function openStockClient(options: StockClientOptions): StockClient {
  const { callTimeoutMs, keyedTimeoutMs, loadTimeoutMs, onCheck, ...channel } = options;
  const client = openInventoryChannel(channel);
  const pipeline = new UpdatePipeline(() => client.applyUpdates());
  const updates = createUpdateSender({ pipeline, callTimeoutMs, keyedTimeoutMs });
  const checks = new CheckSession(() => client.checkInventory(), callTimeoutMs);
  const checkOutage = new Outage(callTimeoutMs);
  const longReads = new Set<{ cancel(): void }>();
  /** Asks for changes, and again in a short outage: that changes nothing, so it may be repeated. */
  const askAgain = <T>(ask: () => Promise<T>, report: CheckReport) =>
    inSpan("CheckInventory", clientCall, context.active(), () =>
      checkOutage.rideOut(
        ask,
        (error) => (error as ServiceError).code === status.UNAVAILABLE,
        (error) => {
          report.setback(fromServiceError(error));
          return true;
        },
      ),
    );

  return {
    get updatesInFlight() {
      return pipeline.inFlight;
    },
    get updatesUnknown() {
      return pipeline.unknown;
    },

    update: updates.send,
    endRepeats: () => updates.endSoon(),

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
        const ask = () => checks.changesAfter(position, activeTraceparent(), () => report.progress());
        const changes = await askAgain(ask, report);
        isAnswered = true;
        return changes;
      } catch (error) {
        throw fromServiceError(error);
      } finally {
        onCheck(performance.now() - startedMs, isAnswered);
      }
    },

    removedAfter: async (position, max, report) => {
      const ask = async () => {
        const stream = client.checkInventory({ deadline: Date.now() + loadTimeoutMs });
        longReads.add(stream);
        // A service that is silent must not hold up all readers of older changes: another one may answer.
        const silence = setTimeout(() => stream.destroy(noAnswer()), callTimeoutMs);
        try {
          return await readRemovals(stream, position, max, () => {
            silence.refresh();
            report.progress();
          });
        } finally {
          clearTimeout(silence);
          longReads.delete(stream);
        }
      };
      try {
        return await askAgain(ask, report);
      } catch (error) {
        throw fromServiceError(error);
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

function noAnswer(): ServiceError {
  return serviceError(status.DEADLINE_EXCEEDED, "the inventory service did not send older changes in time");
}
