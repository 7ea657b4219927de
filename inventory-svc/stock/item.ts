export const petStatuses = ["available", "pending", "sold"] as const;
export type PetStatus = (typeof petStatuses)[number];

/** The largest quantity: what an int32 holds, on the wire and in the database. */
export const maxQuantity = 2_147_483_647;

export const minPetId = -(2n ** 63n);
export const maxPetId = 2n ** 63n - 1n;

/** One entry of the stock. */
export interface StockItem {
  readonly petId: bigint;
  readonly quantity: number;
  readonly status: PetStatus;
  /** The revision of the stock that last changed this entry. */
  readonly revision: bigint;
}

/** An entry as the table keeps it: a removed one stays as a tombstone, so that readers can learn of the removal. */
export interface StockRow extends StockItem {
  readonly removed: boolean;
}
