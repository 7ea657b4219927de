import type { Item } from "../../../proto/pet.ts";

/** The JSON of InventoryItem. petId is written as an integer in full: JSON.stringify rounds 64-bit ones. */
export function renderItem({ petId, quantity, status }: Omit<Item, "revision">): string {
  return `{"petId":${petId},"quantity":${quantity},"status":"${status}"}`;
}
