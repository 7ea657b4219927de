/** Rows of the stock's tables, and the values that they stand for. */
import type { PetStatus } from "../../proto/pet.ts";
import type { Adjustment, Change, StockRow } from "./changes.ts";

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

export const adjustmentsTable = "stock_adjustments";

export const adjustmentColumns = ["revision", "request_id", "pet_id", "delta", "quantity", "status"] as const;

/** A recorded adjustment as the drivers give it. */
export interface AdjustmentRow {
  revision: bigint;
  request_id: string;
  pet_id: bigint;
  delta: number | bigint;
  quantity: number | bigint;
  status: string;
}

/** @returns the request ids of the adjustments among the changes, each once */
export function requestIdsOf(changes: readonly Change[]): Set<string> {
  const ids = new Set<string>();
  for (const change of changes) if (change.kind === "adjust") ids.add(change.requestId);
  return ids;
}

export function toAdjustment({ revision, request_id, pet_id, delta, quantity, status }: AdjustmentRow): Adjustment {
  return {
    requestId: request_id,
    delta: Number(delta),
    item: { petId: pet_id, quantity: Number(quantity), status: status as PetStatus, revision },
  };
}

/** The row that records an adjustment, without the time. */
export function toAdjustmentRow({ requestId, delta, item }: Adjustment) {
  return {
    revision: item.revision,
    request_id: requestId,
    pet_id: item.petId,
    delta,
    quantity: item.quantity,
    status: item.status,
  };
}
