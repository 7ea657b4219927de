import { ChannelCredentials, type ClientReadableStream } from "@grpc/grpc-js";
import { InventoryServiceClient, type ListInventoryResponse } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { CheckSession } from "./check-session.ts";
import type { Item } from "./item.ts";
import type { StockSource } from "./list/stock-list.ts";
import { fromServiceError } from "./status.ts";
import { type Update, UpdatePipeline } from "./update-pipeline.ts";
import { toItem } from "./wire.ts";

export interface InventoryClientOptions {
  /** gRPC target, as `127.0.0.1:50051` or `dns:///inventory-svc:50051` for many. */
  readonly address: string;
  /** Deadline of an update and of a check. */
  readonly callTimeoutMs: number;
  /** Deadline of reading the whole list. */
  readonly loadTimeoutMs: number;
}

/** The inventory service as the gateway sees it: promises, deadlines on every call, errors of the public contract. */
export interface InventoryClient extends StockSource {
  /**
   * Resolves once the update is durable.
   *
   * @throws ApiError not_found, precondition_failed, service_unavailable or timeout; after the last two it may have happened
   */
  update(update: Update): Promise<Item>;
  close(): void;
}

export function createInventoryClient({
  address,
  callTimeoutMs,
  loadTimeoutMs,
}: InventoryClientOptions): InventoryClient {
  const client = new InventoryServiceClient(address, ChannelCredentials.createInsecure(), {
    "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 5_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1_000,
    "grpc-node.flow_control_window": 4 * 1024 * 1024,
  });
  const updates = new UpdatePipeline(() => client.applyUpdates(), callTimeoutMs);
  const checks = new CheckSession(() => client.checkInventory(), callTimeoutMs);

  return {
    update: async (update) => {
      try {
        return await updates.submit(update);
      } catch (error) {
        throw fromServiceError(error);
      }
    },

    async *load() {
      const deadline = Date.now() + loadTimeoutMs;
      const stream: ClientReadableStream<ListInventoryResponse> = client.listInventory({}, { deadline });
      try {
        for await (const { items, epoch, revision } of stream as AsyncIterable<ListInventoryResponse>) {
          yield { position: { epoch, revision }, items: items.map(toItem) };
        }
      } catch (error) {
        throw fromServiceError(error);
      } finally {
        stream.cancel();
      }
    },

    changesAfter: async (position) => {
      try {
        return await checks.changesAfter(position);
      } catch (error) {
        throw fromServiceError(error);
      }
    },

    close: () => {
      updates.close();
      checks.close();
      client.close();
    },
  };
}
