export const petStatuses = ["available", "pending", "sold"] as const;
export type PetStatus = (typeof petStatuses)[number];

/** InventoryItem of the contract, with the revision that last changed it. */
export interface Item {
  readonly petId: bigint;
  readonly quantity: number;
  readonly status: PetStatus;
  readonly revision: bigint;
}

/** The JSON of InventoryItem. petId is written as an integer in full: JSON.stringify knows no 64-bit ones. */
export function renderItem({ petId, quantity, status }: Omit<Item, "revision">): string {
  return `{"petId":${petId},"quantity":${quantity},"status":"${status}"}`;
}
