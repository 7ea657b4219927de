/** What a session of MySQL needs, whatever the defaults of its server. */

/** The settings of every connection to MySQL: all that the statements rely on, whatever the server's defaults. */
export function sessionSettings(silenceTimeoutMs: number): string {
  // A wait for a lock ends with an error that can be retried; it ends before the silence timeout if that is over 1 s.
  const lockWaitSeconds = Math.min(3, Math.max(1, Math.floor(silenceTimeoutMs / 2_000)));
  // A live process sends a ping after a quarter of this time.
  const silenceSeconds = Math.ceil((2 * silenceTimeoutMs) / 1_000);
  const settings = [
    // A statement outside of a transaction is durable at its end, and COMMIT begins no other transaction.
    "autocommit = 1",
    "completion_type = NO_CHAIN",
    `innodb_lock_wait_timeout = ${lockWaitSeconds}`,
    `wait_timeout = ${silenceSeconds}`,
    `net_write_timeout = ${silenceSeconds}`,
    // Strict: a value that does not fit its column is an error, and is never changed to fit. NO_BACKSLASH_ESCAPES is
    // left out: it would make mysql2's escapes unsafe.
    "sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
    "sql_select_limit = 9223372036854775807", // Vitess refuses more
    "sql_safe_updates = 0",
    "time_zone = '+00:00'",
    "default_storage_engine = InnoDB", // for the tables that migrations make
  ];
  return [
    // Each statement sees the latest commits, and looking for rows that do not exist locks no gaps.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    `SET SESSION ${settings.join(", ")}`,
    "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci",
  ].join(";");
}
