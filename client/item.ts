import {
  type InventoryItem as WireItem,
  PetStatus as WireStatus,
} from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { InventoryError } from "./errors.ts";

export type PetStatus = "available" | "pending" | "sold";

/** An entry of the stock. */
export interface Item {
  /** Any int64. */
  readonly petId: bigint;
  /** 0 to 2147483647. */
  readonly quantity: number;
  readonly status: PetStatus;
  /** The revision of the stock that last changed it. */
  readonly revision: bigint;
}

/** Everything up to `revision` of `epoch`. */
export interface Position {
  readonly epoch: string;
  readonly revision: bigint;
}

const wireStatuses: Record<PetStatus, WireStatus> = {
  available: WireStatus.PET_STATUS_AVAILABLE,
  pending: WireStatus.PET_STATUS_PENDING,
  sold: WireStatus.PET_STATUS_SOLD,
};

const statuses = new Map(Object.entries(wireStatuses).map(([name, wire]) => [wire, name as PetStatus]));

export function toWireStatus(name: PetStatus | undefined): WireStatus {
  return name === undefined ? WireStatus.PET_STATUS_UNSPECIFIED : wireStatuses[name];
}

/** @throws InventoryError for an answer without an entry, or with a status that this client does not know */
export function toItem(item: WireItem | undefined): Item {
  const status = statuses.get(item?.status as WireStatus);
  if (!item || !status) {
    throw new InventoryError("INTERNAL", "the service sent an entry that this client does not understand");
  }
  return { petId: item.petId, quantity: item.quantity, status, revision: item.revision };
}
