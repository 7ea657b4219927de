/** Checks the files of a SQLite database for faults that SQLite itself reports too late, or never. */
import { accessSync, constants, existsSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseStateError, migrateCommand } from "./database-errors.ts";

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
export function filesAt(path: string): string {
  const file = behindLinks(path);
  const files = [file, `${file}-wal`].map((each) => statSync(each, { bigint: true, throwIfNoEntry: false }));
  return files.map((each) => `${each?.dev} ${each?.ino}`).join();
}
