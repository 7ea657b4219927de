import Sqlite from "better-sqlite3";
import type { Knex } from "knex";
import { isSqlite } from "./database/open.ts";

/** A step of a schema. Names sort in the order in which the steps are taken, as in `0001_stock`. */
export interface Migration {
  readonly name: string;
  up(db: Knex): Promise<void>;
  down(db: Knex): Promise<void>;
}

/** How long one process waits for another that migrates the same database. */
const lockWaitSeconds = 60;

/**
 * Brings a schema up to date, or takes its last step back.
 *
 * Safe to run from several processes at once: they queue on a lock that its holder's death releases.
 *
 * @param schema names the schema, so that several can live in one database
 * @returns the names of the steps taken, in order
 */
export async function migrate(
  db: Knex,
  schema: string,
  migrations: readonly Migration[],
  direction: "up" | "down",
): Promise<string[]> {
  const options: Knex.MigratorConfig = {
    tableName: `${schema}_migrations`,
    migrationSource: {
      getMigrations: async () => [...migrations],
      getMigrationName: (migration: Migration) => migration.name,
      getMigration: async (migration: Migration) => migration,
    },
  };
  return await withMigrationLock(db, async () => {
    // Knex marks a running migration in a table, and a process that died in one leaves the mark behind.
    // Whoever holds our lock knows that nobody else is migrating.
    await db.migrate.forceFreeMigrationsLock(options);
    const [, names] = direction === "up" ? await db.migrate.latest(options) : await db.migrate.down(options);
    return names as string[];
  });
}

/**
 * Makes a table that has its name only when it is complete, and leaves one that is there alone: MySQL commits every
 * statement of a schema by itself, and a migration that died between two of them has to be taken up by the next run.
 */
export async function createTable(db: Knex, name: string, build: (table: Knex.CreateTableBuilder) => void) {
  if (await db.schema.hasTable(name)) return;
  const draft = `${name}_draft`;
  await db.schema.dropTableIfExists(draft);
  await db.schema.createTable(draft, build);
  await db.schema.renameTable(draft, name);
}

async function withMigrationLock<T>(db: Knex, work: () => Promise<T>): Promise<T> {
  return isSqlite(db) ? await withSqliteLock(db, work) : await withMysqlLock(db, work);
}

async function withMysqlLock<T>(db: Knex, work: () => Promise<T>): Promise<T> {
  const holder = await db.client.acquireConnection();
  const silenceTimeoutMs: number = holder.stream.timeout;
  try {
    // This connection is silent while it waits, and while others do the work: closing it would give up the lock.
    holder.stream.setTimeout(lockWaitSeconds * 1_000 + silenceTimeoutMs);
    const [rows] = await holder
      .promise()
      .query("SELECT GET_LOCK(CONCAT('petstore-migrate:', DATABASE()), ?) AS held", [lockWaitSeconds]);
    if (Number(rows[0].held) !== 1) throw new Error("another process has been migrating this database for too long");
    holder.stream.setTimeout(0);
    return await work();
  } finally {
    holder.stream.setTimeout(silenceTimeoutMs);
    await holder
      .promise()
      .query("SELECT RELEASE_LOCK(CONCAT('petstore-migrate:', DATABASE()))")
      .catch(() => {});
    await db.client.releaseConnection(holder);
  }
}

async function withSqliteLock<T>(db: Knex, work: () => Promise<T>): Promise<T> {
  const { filename } = db.client.config.connection as { filename: string };
  if (filename === ":memory:") return await work();
  const holder = new Sqlite(`${filename}.migrate-lock`, { timeout: lockWaitSeconds * 1_000 });
  try {
    holder.exec("BEGIN EXCLUSIVE");
    return await work();
  } finally {
    holder.close();
  }
}
