/** What goes over a connection of the simulated gRPC. */
import type { Metadata, MethodDefinition, status } from "@grpc/grpc-js";
import { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";

export interface Status {
  readonly code: status;
  readonly details: string;
  readonly metadata?: Metadata | undefined;
}

/** What goes over a connection. `id` names a call. */
export type Frame =
  | { readonly kind: "open"; readonly id: number; readonly method: string; readonly timeoutMs: number | undefined }
  | { readonly kind: "metadata" | "half-close" | "cancel" | "refused"; readonly id: number }
  | { readonly kind: "message"; readonly id: number; readonly bytes: Buffer }
  | { readonly kind: "status"; readonly id: number; readonly status: Status }
  /** After the first `taken` calls of a connection the service takes no more: those that follow have had no effect. */
  | { readonly kind: "goaway"; readonly id: 0; readonly taken: number }
  | { readonly kind: "ping" | "pong"; readonly id: 0 };

export type Method = MethodDefinition<unknown, unknown>;
/** The methods of the contract, with their encoders. */
export const methods = InventoryServiceService as unknown as Readonly<Record<string, Method>>;
