/** Checks the files of a SQLite database, about which SQLite itself says nothing or too late. */
import { accessSync, constants, existsSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseStateError } from "./database-errors.ts";

/** @throws DatabaseStateError when there is no such file */
export function requireFile(filename: string): void {
  if (existsSync(filename)) return;
  throw new DatabaseStateError(`there is no SQLite file ${filename}: correct its path, or run npm run migrate`);
}

/**
 * SQLite opens a file that it may only read, too, and the first update would then fail.
 *
 * @throws DatabaseStateError when this user may not write the file, its log, or the folder, in which the log is made
 */
export function requireWritable(filename: string): void {
  const path = existsSync(filename) ? realpathSync(filename) : filename; // SQLite follows links, too
  const [folder, ...files] = [dirname(path), path, `${path}-wal`, `${path}-shm`];
  const locked = [folder, ...files.filter((file) => existsSync(file))].find((each) => !isWritable(each!));
  if (locked === undefined) return;
  const { uid } = statSync(locked);
  const owner = `it is of user ${uid}, this process of user ${process.geteuid?.()}`;
  throw new DatabaseStateError(
    `this process cannot write ${locked}: ${owner}. Give folder and files to the user of the services, and run commands as that user`,
  );
}

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** Names the files of a database, whatever other names they have: that of the data, and the log with the latest changes. */
export function filesAt(path: string): string {
  const file = existsSync(path) ? realpathSync.native(path) : path; // SQLite makes the log beside the file, not the link
  const files = [file, `${file}-wal`].map((each) => statSync(each, { bigint: true, throwIfNoEntry: false }));
  return files.map((each) => `${each?.dev} ${each?.ino}`).join();
}
