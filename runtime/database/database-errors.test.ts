import { isReadOnly, isTransient, provesUndone } from "./database-errors.ts";

/** As mysql2 makes it and Knex changes its message. */
const error = (code: string, sqlState?: string, sqlMessage = code) =>
  Object.assign(new Error(`update stock - ${sqlMessage}`), { code, sqlState, sqlMessage });

test.each([
  ["a deadlock", error("ER_LOCK_DEADLOCK", "40001")],
  ["a wait for a lock that was too long", error("ER_LOCK_WAIT_TIMEOUT", "HY000")],
  ["a rollback during the commit, as of Group Replication", error("ER_TRANSACTION_ROLLBACK_DURING_COMMIT", "40000")],
  ["a deadlock that is reported during a commit", error("ER_ERROR_DURING_COMMIT", "HY000", "Got error 149 - 'Lock")],
  ["a write conflict of MariaDB", error("ER_CHECKREAD", "HY000")],
  ["a server that takes no writes any more", error("ER_OPTION_PREVENTS_STATEMENT", "HY000")],
])("a transaction may be retried after %s", (_what, thrown) => {
  expect(isTransient(thrown)).toBe(true);
});

test.each([
  ["another error during the commit", error("ER_ERROR_DURING_COMMIT", "HY000", "Got error 28 - 'No space left'")],
  ["a statement whose completion is unknown", error("ER_SOMETHING", "40003")],
  ["a broken connection", error("PROTOCOL_CONNECTION_LOST")],
  ["a duplicate key", error("ER_DUP_ENTRY", "23000")],
  ["a busy SQLite file, for which the thread has waited", error("SQLITE_BUSY")],
  ["a fault that is no database error", new TypeError("no such property")],
])("a transaction is not retried after %s", (_what, thrown) => {
  expect(isTransient(thrown)).toBe(false);
});

test("lost races, read-only servers and errors of classes 22, 23 and 42 prove there is no commit", () => {
  for (const state of ["22003", "23000", "42S02", "40001"]) expect(provesUndone(error("ER_ANY", state))).toBe(true);
  expect(provesUndone(error("ER_OPTION_PREVENTS_STATEMENT", "HY000"))).toBe(true);
  expect(provesUndone(error("SQLITE_BUSY"))).toBe(true);
  const closed = new Error(
    "insert into t(v) values (6);COMMIT - Can't add new command when connection is in closed state",
  );
  expect(provesUndone(Object.assign(closed, { fatal: true }))).toBe(true);
  for (const state of ["40003", "HY000", "08S01"]) expect(provesUndone(error("ER_ANY", state))).toBe(false);
});

test("a rollback during the commit proves nothing: other servers may have the transaction", () => {
  expect(provesUndone(error("ER_TRANSACTION_ROLLBACK_DURING_COMMIT", "40000"))).toBe(false);
  expect(provesUndone(error("ER_ERROR_DURING_COMMIT", "HY000", "Got error 149 - 'Lock deadlock"))).toBe(false);
});

test("a server that takes no writes is told from one that lost a race", () => {
  expect(isReadOnly(error("ER_READ_ONLY_MODE", "HY000"))).toBe(true);
  expect(isReadOnly(error("ER_LOCK_DEADLOCK", "40001"))).toBe(false);
});
