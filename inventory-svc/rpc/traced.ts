import type { handleUnaryCall } from "@grpc/grpc-js";
import {
  type InventoryServiceServer,
  InventoryServiceService,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Tracing } from "../../runtime/tracing.ts";

/**
 * Handlers whose single calls go on from the `traceparent` in their metadata. What shares a stream brings one with each
 * message.
 */
export function traced(handlers: InventoryServiceServer, tracing: Tracing): InventoryServiceServer {
  const all = Object.entries(handlers).map(([name, handle]) => {
    const { requestStream, responseStream } = InventoryServiceService[name as keyof typeof InventoryServiceService];
    return [name, requestStream || responseStream ? handle : tracedCall(name, handle as AnyUnary, tracing)];
  });
  return Object.fromEntries(all) as InventoryServiceServer;
}

type AnyUnary = handleUnaryCall<unknown, unknown>;

function tracedCall(name: string, handle: AnyUnary, tracing: Tracing): AnyUnary {
  return (call, callback) => {
    const [traceparent] = call.metadata.get("traceparent");
    const answered = () =>
      new Promise<void>((resolve, reject) => {
        handle(call, (error, ...answer) => {
          callback(error, ...answer);
          if (error) reject(error);
          else resolve();
        });
      });
    const method = name.charAt(0).toUpperCase() + name.slice(1);
    tracing.serve(method, traceparent?.toString(), answered).catch(() => {}); // it has been told
  };
}
