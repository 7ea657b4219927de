/** Opens SQLite, and checks its files: SQLite itself tells what is wrong with them too late, or not at all. */
import { accessSync, constants, existsSync, mkdirSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import knex, { type Knex } from "knex";
import { DatabaseStateError, migrateCommand } from "./database-errors.ts";
import { type AfterCreate, checkTaken, quiet } from "./knex-internals.ts";

/**
 * Opens a SQLite file.
 *
 * @param filename or `:memory:`
 * @param makesFile whether a missing file is made, with its folder
 */
export function openSqlite(filename: string, makesFile: boolean): Knex {
  const isFile = filename !== ":memory:";
  if (isFile && makesFile) mkdirSync(dirname(filename), { recursive: true });
  let opened: string | undefined;
  const afterCreate: AfterCreate<{ pragma(text: string, options?: object): unknown; close(): void }> = (
    connection,
    done,
  ) => {
    // Otherwise damage in the middle of the file is found by the first caller that needs a damaged page.
    const [found] = connection.pragma("quick_check(1)", { simple: false }) as [{ quick_check: string }];
    if (found.quick_check !== "ok") {
      connection.close();
      const message = `the SQLite file ${filename} is damaged (${found.quick_check}): restore a backup`;
      return done(new DatabaseStateError(message), connection);
    }
    connection.pragma("journal_mode = WAL");
    connection.pragma("synchronous = FULL"); // an acknowledged write survives a power cut, as on a durable MySQL
    connection.pragma("busy_timeout = 2000");
    connection.pragma("foreign_keys = ON");
    connection.pragma("user_version"); // the first read makes the log
    if (isFile) opened = filesAt(filename);
    done(null, connection);
  };
  const db = knex({
    client: "better-sqlite3",
    ...quiet,
    // The whole process shares one connection. A second one would gain nothing, because each statement blocks this
    // thread. It would do harm where it waits for a lock of the first: that wait blocks the thread, too.
    pool: { min: 1, max: 1, afterCreate },
    acquireConnectionTimeout: 10_000,
    connection: { filename, options: { safeIntegers: true } } as Knex.StaticConnectionConfig,
    useNullAsDefault: true,
  });
  // SQLite goes on in files that have lost their names, and whatever it commits there is gone with the process.
  if (isFile) {
    const beforeOpening = () => {
      if (opened !== undefined) return;
      if (!makesFile) requireFile(filename);
      requireWritable(filename);
    };
    checkTaken(db, beforeOpening, () => {
      if (filesAt(filename) === opened) return;
      throw new DatabaseStateError(
        `the SQLite file ${filename}, or its -wal file, was deleted or replaced while it was open: restore it and restart`,
      );
    });
  }
  return db;
}

/** @throws DatabaseStateError when there is no such file, or this user may not enter its folder */
export function requireFile(filename: string): void {
  try {
    statSync(filename);
    return;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EACCES") throw new DatabaseStateError(`${self()} may not enter the folder of ${filename}. ${advice}`);
  }
  throw new DatabaseStateError(`there is no SQLite file ${filename}: correct its path, or run ${migrateCommand()}`);
}

/**
 * Checks that a database can be written. SQLite also opens a file that this user may only read, and the first update
 * would fail.
 *
 * @throws DatabaseStateError when this user may not write the file, its log, or the folder, in which the log is made
 */
export function requireWritable(filename: string): void {
  const path = behindLinks(filename);
  const [folder, ...files] = [dirname(path), path, `${path}-wal`, `${path}-shm`];
  const locked = [folder, ...files.filter((file) => existsSync(file))].find((each) => !isWritable(each!));
  if (locked === undefined) return;
  const { uid, mode } = statSync(locked);
  const rights = `it is of user ${uid} with mode ${(mode & 0o7777).toString(8).padStart(4, "0")}`;
  throw new DatabaseStateError(`${self()} cannot write ${locked}: ${rights}. ${advice}`);
}

/** The path of a file without links, if there is one. SQLite follows them, and makes its log beside the file. */
function behindLinks(path: string): string {
  return existsSync(path) ? realpathSync.native(path) : path;
}

const advice = "Give folder and files to the user of the services, writable, and run commands as that user";

const self = () => `this process of user ${process.geteuid?.()}`;

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** Identifies the files behind a path by device and inode: that of the data, and its log with the latest changes. */
function filesAt(path: string): string {
  const file = behindLinks(path);
  const files = [file, `${file}-wal`].map((each) => statSync(each, { bigint: true, throwIfNoEntry: false }));
  return files.map((each) => `${each?.dev} ${each?.ino}`).join();
}
