import type { Item, PetStatus } from "../../proto/pet.ts";

/** An entry as the table keeps it. A removed one stays as a tombstone, so that readers learn of the removal. */
export interface StockRow extends Item {
  readonly removed: boolean;
}

/** An entry as the drivers give it. */
export interface Row {
  pet_id: bigint;
  quantity: number | bigint;
  status: string;
  revision: bigint;
  removed: number | bigint;
}

export const columns = ["pet_id", "quantity", "status", "revision", "removed"] as const;

export function toStockRow(row: Row): StockRow {
  return {
    petId: row.pet_id,
    quantity: Number(row.quantity),
    status: row.status as PetStatus,
    revision: row.revision,
    removed: Boolean(Number(row.removed)),
  };
}

/** An entry as a row to insert. */
export function toRow(row: StockRow) {
  return {
    pet_id: row.petId,
    quantity: row.quantity,
    status: row.status,
    revision: row.revision,
    removed: row.removed ? 1 : 0,
  };
}
