/**
 * Reads from the server that takes the writes. After a planned switch an open connection may still lead to the server
 * that took them before. It is read-only by then, and what it answers may be older than what was written since.
 */
import type { Knex } from "knex";
import { isOn } from "./engine.ts";
import { isBusyFile, isRetryable, ReadOnlyServerError } from "./errors.ts";
import { discardAllConnections } from "./knex-internals.ts";
import { isSqlite, lostItsServer } from "./open.ts";
import { maxAttempts } from "./transactions.ts";

/**
 * The columns by which `readCurrent` recognizes an old primary. They have to be part of the query itself, which has to
 * answer at least one row. A reader of Aurora says it by the second one only.
 */
export function readOnlyColumns(db: Knex): Knex.Raw {
  const [server, engine] = isSqlite(db) ? ["0", "0"] : ["@@read_only", "@@innodb_read_only"];
  return db.raw(`${server} as server_read_only, ${engine} as engine_read_only`);
}

/** A row with `readOnlyColumns`, as the drivers give it. */
export interface ServerRow {
  server_read_only: number | bigint | string;
  engine_read_only: number | bigint | string;
}

/**
 * Reads, and reads again over another connection where the server was an old primary, or is gone.
 *
 * @param read sends a query with `readOnlyColumns`
 * @throws ReadOnlyServerError when every attempt was answered by a server that takes no writes
 */
export async function readCurrent<Row extends ServerRow>(
  db: Knex,
  read: () => PromiseLike<readonly Row[]>,
): Promise<readonly Row[]> {
  for (let attempt = 1; ; attempt++) {
    try {
      return refuseOldPrimary(db, await read());
    } catch (error) {
      // One repeat after a lost server: a query that is never answered would otherwise be sent again and again.
      const mayRepeat = (attempt === 1 && lostItsServer(error)) || (isRetryable(error) && !isBusyFile(error));
      if (attempt === maxAttempts || !mayRepeat) throw error;
    }
  }
}

function refuseOldPrimary<Row extends ServerRow>(db: Knex, rows: readonly Row[]): readonly Row[] {
  if (!rows.some((row) => isOn(row.server_read_only) || isOn(row.engine_read_only))) return rows;
  const error = new ReadOnlyServerError();
  discardAllConnections(db, error);
  throw error;
}
