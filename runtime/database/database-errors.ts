/** Says what the errors of the drivers mean. No file but this one and `faults.ts` knows their codes and SQLSTATEs. */

/** Errors of a server that takes no writes: after a failover, a connection may still lead to the old primary. */
const readOnlyCodes = new Set([
  "ER_OPTION_PREVENTS_STATEMENT",
  "ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION",
  "ER_READ_ONLY_MODE",
]);

/** Errors of a transaction that lost against another one. */
const lostRaceCodes = new Set(["ER_LOCK_DEADLOCK", "ER_LOCK_WAIT_TIMEOUT", "ER_CHECKREAD", "SQLITE_BUSY_SNAPSHOT"]);

/**
 * SQLSTATE class 40: the server has rolled the transaction back, because of a deadlock or a conflict in a cluster.
 * 40003 is left out: it says that the outcome is unknown.
 */
const rolledBack = /^40(?!003)/;

/** InnoDB's deadlock, where Group Replication reports it during a commit or a read (ER_ERROR_DURING_COMMIT, HY000). */
const deadlockDuringCommit = /^Got error 149\b/;

/**
 * Errors of Group Replication for a commit that this server has rolled back. It may have sent the transaction to the
 * group before, and then another member may commit it.
 */
const inDoubtCodes = new Set(["ER_TRANSACTION_ROLLBACK_DURING_COMMIT", "ER_ERROR_DURING_COMMIT"]);

/**
 * COMMIT never fails with these classes of SQLSTATE: 22 data, 23 constraint, 42 syntax or access (SQLITE_ERROR in
 * SQLite). SQLite's BEGIN waits for the lock of the file, and fails with SQLITE_BUSY.
 */
const beforeCommit = /^(22...|23...|42...|SQLITE_ERROR|SQLITE_BUSY)$/;

/**
 * True for an error of a server that takes no writes any more. Nothing has happened, even when COMMIT failed with it.
 */
export function isReadOnly(error: unknown): boolean {
  return readOnlyCodes.has(codeOf(error)) || error instanceof ReadOnlyServerError;
}

/**
 * True for an error after which another attempt may succeed: the transaction lost against another one, or another
 * server has to be asked. Before COMMIT that is safe: a ROLLBACK takes back all of the transaction.
 *
 * SQLITE_BUSY is not among them: SQLite has blocked this thread while it waited for the lock of its file.
 */
export function isTransient(error: unknown): boolean {
  const { sqlState = "", sqlMessage = "" } = error as { sqlState?: string; sqlMessage?: string };
  const code = codeOf(error);
  if (code === "ER_ERROR_DURING_COMMIT") return deadlockDuringCommit.test(sqlMessage);
  return lostRaceCodes.has(code) || rolledBack.test(sqlState) || isReadOnly(error) || error instanceof SplitReadError;
}

/**
 * True for an error that shows that a connection leads to no usable server. It is lost (the driver's `fatal`, or
 * SQLSTATE class 08, as from a Galera node that has left its cluster), the server has ended it for its silence, or the
 * server takes no writes.
 */
export function showsLostServer(error: unknown): boolean {
  const { fatal = false, sqlState = "" } = error as { fatal?: boolean; sqlState?: string };
  const wasSilent = codeOf(error) === "ER_CLIENT_INTERACTION_TIMEOUT";
  return fatal || sqlState.startsWith("08") || wasSilent || isReadOnly(error);
}

/** The driver's words for a connection that was closed before it could send anything. Knex puts the SQL before them. */
const wasClosed = /Can't add new command when connection is in closed state$/;

/**
 * True for an error of a packet with COMMIT that proves that the transaction has not happened: COMMIT was not sent or
 * not reached, or the database has rolled it back everywhere.
 */
export function provesUndone(error: unknown): boolean {
  const code = codeOf(error);
  if (beforeCommit.test((error as { sqlState?: string }).sqlState ?? code)) return true;
  if (wasClosed.test((error as Error).message)) return true;
  return isTransient(error) && !inDoubtCodes.has(code);
}

/** The code of an error, such as `ER_DUP_ENTRY` of a driver; empty for one without. */
export function codeOf(error: unknown): string {
  return (error as { code?: string }).code ?? "";
}

/** How an operator brings the schemas up to date, in the repository and where the package is installed. */
export function migrateCommand(...args: readonly string[]): string {
  const ofNpm = args.length === 0 ? args : ["--", ...args];
  return `${["npm run migrate", ...ofNpm].join(" ")} (in the package: ${["npx petstore-migrate", ...args].join(" ")})`;
}

/** A state of the database that its operator has to mend. The message says it in full. */
export class DatabaseStateError extends Error {}

/** The server takes no writes: it is a replica or was the primary before, so its answers may be old. */
export class ReadOnlyServerError extends DatabaseStateError {
  constructor() {
    super("the database server is read-only, so its answers may be old: the URL has to lead to the primary");
    this.name = "ReadOnlyServerError";
  }
}

/** A read was answered by another server than the one that its connection was prepared on. */
export class SplitReadError extends DatabaseStateError {
  constructor() {
    super(
      "a proxy has sent a read to another database server than the one that it connected to, so the answer may be old: the URL has to lead to the primary without splitting reads",
    );
    this.name = "SplitReadError";
  }
}
