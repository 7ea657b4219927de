import { rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { createDatabaseOn, dropMysqlDatabase } from "./mysql-client.ts";
import { temporaryFolder } from "./stack.ts";

const sqliteFolder = "sqlite";

/** @returns the URL of a new empty database on the server that all suites share */
export async function createMysqlDatabase(): Promise<string> {
  const serverUrl = process.env.TEST_MYSQL_SERVER_URL;
  if (!serverUrl) throw new Error("No shared database server: is this file in Jest's project with global-setup.ts?");
  return await createDatabaseOn(serverUrl);
}

/** @returns the URL of a new empty SQLite database, a file in a folder of its own */
export async function createSqliteDatabase(): Promise<string> {
  const folder = await temporaryFolder(sqliteFolder);
  const file = join(folder.path, "test.sqlite");
  await writeFile(file, "");
  return `sqlite:${file}`;
}

/** Drops a database that one of the functions above made. */
export async function dropDatabase(url: string): Promise<void> {
  if (!url.startsWith("sqlite:")) return await dropMysqlDatabase(url);
  const folder = dirname(url.slice("sqlite:".length));
  if (!basename(folder).startsWith(`petstore-${sqliteFolder}-`))
    throw new Error(`${url} is not a database of the tests`);
  await rm(folder, { recursive: true, force: true });
}

const kinds = [
  ["SQLite", createSqliteDatabase],
  ["MySQL/MariaDB", createMysqlDatabase],
] as const;

/**
 * Declares the same tests for each kind of database. Each kind gets a new database before the hooks and tests run,
 * which is dropped after them.
 *
 * @param tests gets the URL of the database as a function, to be called in hooks and tests only
 */
export function describeEachDatabase(name: string, tests: (url: () => string) => void): void {
  for (const [kind, create] of kinds) {
    describe(`${name} (${kind})`, () => {
      let created: string | undefined;
      beforeAll(async () => {
        created = await create();
      });
      tests(() => {
        if (created === undefined) throw new Error("The database exists only in hooks and tests");
        return created;
      });
      // Jest runs afterAll hooks in the order of their declaration: this is the last.
      afterAll(async () => {
        if (created !== undefined) await dropDatabase(created);
      });
    });
  }
}
