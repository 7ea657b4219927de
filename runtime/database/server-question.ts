/** Asks a server of MySQL's protocol for what tells its engine and the risks of its settings. */

/** A row of `SHOW VARIABLES`. A server omits the variables that it does not know. */
export interface VariableRow {
  readonly Variable_name: string;
  readonly Value: string;
}

/** A table that is not as migrations make it: another storage engine keeps it, or its texts compare in another way. */
export interface AlteredTable {
  readonly name: string;
  readonly storageEngine: string | null;
  readonly collation: string | null;
}

const readAlteredTables = `SELECT table_name AS name, engine AS storageEngine, NULL AS collation FROM information_schema.tables \
WHERE table_schema = DATABASE() AND engine <> 'InnoDB' UNION ALL \
SELECT table_name, NULL, collation_name FROM information_schema.columns WHERE table_schema = DATABASE() \
AND table_name = 'stock_ledger' AND column_name = 'once_id' AND collation_name NOT LIKE '%bin'`;

/** The statements that ask for what `engineOf` reads: the variables, and the altered tables. */
export const serverQuestionSql = `SHOW VARIABLES WHERE Variable_name IN (${[
  "version",
  "server_id",
  "read_only",
  "super_read_only",
  "innodb_read_only",
  "log_bin",
  "innodb_flush_log_at_trx_commit",
  "sync_binlog",
  "rpl_semi_sync_source_enabled",
  "rpl_semi_sync_source_timeout",
  "rpl_semi_sync_source_wait_point",
  "rpl_semi_sync_source_wait_no_replica",
  "rpl_semi_sync_master_enabled",
  "rpl_semi_sync_master_timeout",
  "rpl_semi_sync_master_wait_point",
  "rpl_semi_sync_master_wait_no_slave",
  "group_replication_group_name",
  "group_replication_single_primary_mode",
  "group_replication_consistency",
  "group_replication_unreachable_majority_timeout",
  "wsrep_on",
  "wsrep_cluster_name",
  "wsrep_sync_wait",
  "wsrep_dirty_reads",
  "wsrep_provider_options",
  "tidb_txn_mode",
  "tidb_replica_read",
  "tidb_load_based_replica_read_threshold",
  "tidb_guarantee_linearizability",
  "tidb_rc_read_check_ts",
]
  .map((name) => `'${name}'`)
  .join(",")});${readAlteredTables}`;
