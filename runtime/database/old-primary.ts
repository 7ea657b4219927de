/**
 * Reads from the server that takes the writes, and uses no answer of another one.
 *
 * After a planned switch an open connection may still lead to the server that took the writes before. That server is
 * read-only by then, and its answers may be old. The same holds for a replica to which a proxy sends reads, read-only
 * or not.
 */
import type { Knex } from "knex";
import { isTransient, ReadOnlyServerError, SplitReadError } from "./database-errors.ts";
import { isOn, serverIdVariable } from "./engine.ts";
import { discardAllConnections, isSqlite } from "./knex-internals.ts";
import { wasServerLost } from "./open.ts";
import { maxAttempts } from "./statements.ts";

/**
 * Whether a server takes no writes. MySQL sets `super_read_only` first, and `read_only` only once it has waited for
 * locks of tables; another server may take writes by then. MariaDB has no such variable, and skips the comment that
 * asks for it.
 */
export const readOnlySql = "@@read_only /*!80000 | @@super_read_only */";

/**
 * Vitess lets equal concurrent reads share an answer, which may be older than the read. This hint turns that off. It
 * must follow SELECT directly; other engines skip it.
 */
const ownAnswer = "/*vt+ CONSOLIDATOR=disabled */";

/**
 * The columns by which `readCurrent` recognizes an old primary, and a server that a proxy has chosen for reads. They
 * have to be the first ones of the query itself, which has to answer at least one row. On a reader of Aurora only the
 * second column shows that it is read-only.
 */
export function serverColumns(db: Knex): Knex.Raw {
  const [server, engine, same] = isSqlite(db)
    ? ["0", "0", "1"]
    : [readOnlySql, "@@innodb_read_only", `@@server_id <=> ${serverIdVariable}`];
  return db.raw(`${ownAnswer} ${server} as server_read_only, ${engine} as engine_read_only, ${same} as same_server`);
}

/** A row with `serverColumns`, as the drivers give it. */
export interface ServerRow {
  server_read_only: number | bigint | string;
  engine_read_only: number | bigint | string;
  same_server: number | bigint;
}

/**
 * Reads, and reads again over another connection where the wrong server has answered, or the server is gone.
 *
 * @param read sends a query with `serverColumns`
 * @throws ReadOnlyServerError when the last attempt was answered by a server that takes no writes
 * @throws SplitReadError when it was answered by another server than the one that its connection was prepared on
 */
export async function readCurrent<Row extends ServerRow>(
  db: Knex,
  read: () => PromiseLike<readonly Row[]>,
): Promise<readonly Row[]> {
  for (let attempt = 1; ; attempt++) {
    try {
      return refuseWrongServer(db, await read());
    } catch (error) {
      // One repeat after a lost server: a query that is never answered would otherwise be sent again and again.
      const mayRetry = (attempt === 1 && wasServerLost(error)) || isTransient(error);
      if (attempt === maxAttempts || !mayRetry) throw error;
    }
  }
}

/**
 * Takes rows with `serverColumns` only from the server that takes the writes. When another server has sent them, no
 * connection that is open now is used again.
 *
 * @throws ReadOnlyServerError, SplitReadError
 */
export function refuseWrongServer<Row extends ServerRow>(db: Knex, rows: readonly Row[]): readonly Row[] {
  const isSplit = rows.some((row) => !isOn(row.same_server));
  const isReadOnly = rows.some((row) => isOn(row.server_read_only) || isOn(row.engine_read_only));
  if (!isSplit && !isReadOnly) return rows;
  const error = isSplit ? new SplitReadError() : new ReadOnlyServerError();
  discardAllConnections(db, error);
  throw error;
}
