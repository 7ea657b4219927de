import type { Item, PetStatus } from "../../client/item.ts";

/** The statuses of the contract, in its order. */
export const petStatuses = ["available", "pending", "sold"] as const satisfies readonly PetStatus[];

/** The JSON of InventoryItem. petId is written as an integer in full: JSON.stringify knows no 64-bit ones. */
export function renderItem({ petId, quantity, status }: Omit<Item, "revision">): string {
  return `{"petId":${petId},"quantity":${quantity},"status":"${status}"}`;
}
