/** Rows of the stock's tables, and the values that they stand for. */
import type { PetStatus } from "../../proto/pet.ts";
import type { OnceRecord, StockRow } from "./decide-changes.ts";

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

/** Keeps the results of changes that happen once. */
export const recordsTable = "stock_requests";

export const recordColumns = ["request_id", "fingerprint", "pet_id", "quantity", "status", "revision"] as const;

/** A record as the drivers give it. */
export interface RecordRow {
  request_id: string;
  fingerprint: string;
  pet_id: bigint;
  quantity: number | bigint;
  status: string;
  revision: bigint;
}

export function toRecord({ request_id, fingerprint, pet_id, quantity, status, revision }: RecordRow): OnceRecord {
  return {
    id: request_id,
    fingerprint,
    item: { petId: pet_id, quantity: Number(quantity), status: status as PetStatus, revision },
  };
}

/** A record as a row to insert, without the time. */
export function toRecordRow({ id, fingerprint, item }: OnceRecord) {
  return {
    request_id: id,
    fingerprint,
    pet_id: item.petId,
    quantity: item.quantity,
    status: item.status,
    revision: item.revision,
  };
}
