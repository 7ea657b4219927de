/** Looks for server settings by which a commit can be lost. */
import type { Knex } from "knex";
import { isSqlite } from "./open.ts";

/**
 * Names the settings of a MySQL server by which a commit can be lost when the server, or its machine, fails.
 *
 * @returns a text for each, such as `sync_binlog is 0, not 1`; none on SQLite
 */
export async function durabilityWarnings(db: Knex): Promise<string[]> {
  if (isSqlite(db)) return [];
  const [[server]] = await db.raw(
    "SELECT @@innodb_flush_log_at_trx_commit AS flushLog, @@log_bin AS logBin, @@sync_binlog AS syncBinlog",
  );
  const warnings: string[] = [];
  if (Number(server.flushLog) !== 1) warnings.push(`innodb_flush_log_at_trx_commit is ${server.flushLog}, not 1`);
  if (Number(server.logBin) === 1 && Number(server.syncBinlog) !== 1) {
    warnings.push(`sync_binlog is ${server.syncBinlog}, not 1`);
  }
  return warnings;
}
