import { status } from "@grpc/grpc-js";
import { type InventoryItem, PetStatus as WireStatus } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { PetStatus, StockItem } from "../stock/item.ts";
import { RpcError } from "./errors.ts";

const wireStatuses: Record<PetStatus, WireStatus> = {
  available: WireStatus.PET_STATUS_AVAILABLE,
  pending: WireStatus.PET_STATUS_PENDING,
  sold: WireStatus.PET_STATUS_SOLD,
};

const statuses = new Map(Object.entries(wireStatuses).map(([name, wire]) => [wire, name as PetStatus]));

export function toWireItem(item: StockItem): InventoryItem {
  return { petId: item.petId, quantity: item.quantity, status: wireStatuses[item.status], revision: item.revision };
}

/** @throws RpcError INVALID_ARGUMENT when it is missing or negative; int32 bounds it above */
export function readQuantity(quantity: number | undefined): number {
  if (quantity === undefined) throw new RpcError(status.INVALID_ARGUMENT, "quantity is required");
  if (quantity < 0) throw new RpcError(status.INVALID_ARGUMENT, "quantity must be from 0 to 2147483647");
  return quantity;
}

/** @throws RpcError INVALID_ARGUMENT for a value that the contract does not have */
export function readStatus(wire: WireStatus, byDefault: PetStatus): PetStatus {
  if (wire === WireStatus.PET_STATUS_UNSPECIFIED) return byDefault;
  const name = statuses.get(wire);
  if (name === undefined) throw new RpcError(status.INVALID_ARGUMENT, "status must be a PetStatus");
  return name;
}
