/**
 * Recognizes an old primary. After a planned switch an open connection may still lead to the server that took the writes
 * before. It is read-only by then, and what it answers may be older than what was written since.
 */
import type { Knex } from "knex";
import { ReadOnlyServerError } from "./errors.ts";
import { isSqlite } from "./open.ts";

/** The column that `refuseOldPrimary` reads. It has to be part of the query whose answer must not be old. */
export function readOnlyColumn(db: Knex): Knex.Raw {
  return db.raw(isSqlite(db) ? "0 as server_read_only" : "@@read_only as server_read_only");
}

/** A row with `readOnlyColumn`, as the drivers give it. */
export interface ServerRow {
  server_read_only: number | bigint;
}

/** @throws ReadOnlyServerError for a row of a server that takes no writes */
export function refuseOldPrimary<Row extends ServerRow>(rows: readonly Row[]): readonly Row[] {
  if (rows.some((row) => Number(row.server_read_only) !== 0)) throw new ReadOnlyServerError();
  return rows;
}
