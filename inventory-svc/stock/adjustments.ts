import type { Knex } from "knex";
import type { Adjustment, Change } from "./changes.ts";
import type { PetStatus } from "./item.ts";

const table = "stock_adjustments";

interface Row {
  revision: bigint;
  request_id: string;
  pet_id: bigint;
  delta: number | bigint;
  quantity: number | bigint;
  status: string;
}

/** @returns the request ids of the adjustments among the changes, each once */
export function requestIdsOf(changes: readonly Change[]): string[] {
  const ids = new Set<string>();
  for (const change of changes) if (change.kind === "adjust") ids.add(change.requestId);
  return [...ids];
}

/** The query for what is remembered of these request ids; its rows are for `toAdjustment`. */
export function selectAdjustments(db: Knex, requestIds: readonly string[]): Knex.QueryBuilder {
  return db(table)
    .select("revision", "request_id", "pet_id", "delta", "quantity", "status")
    .whereIn("request_id", requestIds);
}

export function toAdjustment(row: unknown): Adjustment {
  const { revision, request_id, pet_id, delta, quantity, status } = row as Row;
  return {
    requestId: request_id,
    delta: Number(delta),
    item: { petId: pet_id, quantity: Number(quantity), status: status as PetStatus, revision },
  };
}

/** The row that remembers an adjustment. */
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
