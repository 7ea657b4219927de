import type { PetStatus } from "../../proto/pet.ts";
import type { Adjustment, Change } from "./changes.ts";

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

/** The row that records an adjustment. */
export function toAdjustmentRow({ requestId, delta, item }: Adjustment, madeAtMs: number) {
  return {
    revision: item.revision,
    request_id: requestId,
    pet_id: item.petId,
    delta,
    quantity: item.quantity,
    status: item.status,
    made_at: madeAtMs,
  };
}
