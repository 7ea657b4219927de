/** Says in one line why a database cannot be used: the fault of a setting, of the server, or of its operator. */
import { isNativeError } from "node:util/types";
import { OperatorError } from "../operator-error.ts";
import { codeOf, DatabaseStateError, isReadOnly, migrateCommand } from "./database-errors.ts";

/**
 * Runs work on a database, and names the setting of the database when that is at fault.
 *
 * @param setting and its tier, as in `INVENTORY_DATABASE_URL (inventory-svc)`
 * @throws OperatorError with one line in place of a driver's error; whatever else the work throws
 */
export async function blamingDatabase<T>(setting: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const fault = databaseFault(error);
    throw fault === undefined ? error : new OperatorError(`${setting}: ${fault}`, { cause: error });
  }
}

const refused = "the database refuses this";
const missing = `the schema is missing or older, run ${migrateCommand()}, or restore tables that were lost`;
const otherVersion = `the schema is of another version, run ${migrateCommand()}`;

/** What codes of the drivers and of the network mean for an operator, the first that matches. */
const meanings: readonly (readonly [RegExp, string])[] = [
  [/^ER_ACCESS_DENIED_ERROR$/, "the server refuses the user or the password"],
  [/^ER_BAD_DB_ERROR$/, "there is no such database on the server"],
  [/^ER_(DB|TABLE|COLUMN)ACCESS_DENIED_ERROR$/, "the account lacks a right, see docs/operations/databases.md"],
  [/^ER_NO_SUCH_TABLE$/, missing],
  [/^ER_BAD_FIELD_ERROR$/, otherVersion],
  [/^ER_SECURE_TRANSPORT_REQUIRED$/, "the server takes TLS only, add ?ssl=true"],
  [/^HANDSHAKE_NO_SSL_SUPPORT$/, "the server has no TLS, which ?ssl=true asks for"],
  [/^HANDSHAKE_SSL_ERROR$/, "the server's TLS cannot be trusted, see NODE_EXTRA_CA_CERTS"],
  [/^(ECONN|EHOST|ENET|ETIMEDOUT|ENOTFOUND|EAI_|PROTOCOL_CONNECTION_LOST)/, "no server answers"],
  [/^SQLITE_(FULL|IOERR)/, "the file cannot be read or written, is the disk full?"],
  [/^SQLITE_(CANTOPEN|READONLY|PERM)/, "the file cannot be opened or written"],
  [/^SQLITE_(CORRUPT|NOTADB)/, "the file is no SQLite database, or is damaged"],
  [/^PROTOCOL_/, "the server does not speak as MySQL does"],
  [/^SQLITE_/, refused],
];

/** Explains an error that a database or the way to it is the cause of; undefined for any other error. */
function databaseFault(error: unknown): string | undefined {
  if (!isNativeError(error)) return undefined;
  if (error instanceof DatabaseStateError) return error.message;
  const code = codeOf(error);
  const { sqlMessage, syscall } = error as { sqlMessage?: string; syscall?: string };
  const said = sqlMessage ?? (afterStatement(error.message) || code);
  if (isReadOnly(error)) return `the server is read-only, the URL has to lead to the primary (${said})`;
  if (syscall === "mkdir") return `the folder of the file cannot be made (${said})`;
  if (/^Hostname\/IP does not match/.test(said)) return `the server's certificate is for another host (${said})`;
  if (error.name === "KnexTimeoutError")
    return "no connection was free in time: no server answers, or all connections are in use";
  if (/^no such table/.test(said)) return `${missing} (${said})`;
  if (/^(no such column|table \S+ has no column)/.test(said)) {
    return `${otherVersion} (${said})`;
  }
  // Servers and proxies have errors of their own, whose codes the driver does not know.
  const otherwise = sqlMessage === undefined ? undefined : refused;
  const [, meaning = otherwise] = meanings.find(([pattern]) => pattern.test(code)) ?? [];
  return meaning === undefined ? databaseFault(error.cause) : `${meaning} (${said})`;
}

/** The message of a driver without the statement that Knex puts before it. */
function afterStatement(message: string): string {
  return message.slice(message.lastIndexOf(" - ") + 1).replace(/^- /, "");
}
