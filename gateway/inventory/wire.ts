import {
  type InventoryItem as WireItem,
  PetStatus as WireStatus,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Item, PetStatus } from "./item.ts";

const statuses = new Map<WireStatus, PetStatus>([
  [WireStatus.PET_STATUS_AVAILABLE, "available"],
  [WireStatus.PET_STATUS_PENDING, "pending"],
  [WireStatus.PET_STATUS_SOLD, "sold"],
]);

/** @throws Error for a status that the public contract does not have */
export function toItem({ petId, quantity, status, revision }: WireItem): Item {
  const name = statuses.get(status);
  if (name === undefined) throw new Error(`the inventory service sent the unknown status ${status}`);
  return { petId, quantity, status: name, revision };
}
