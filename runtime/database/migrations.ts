/** Brings a schema up to date, from any number of processes at once. */
import Sqlite from "better-sqlite3";
import type { Knex } from "knex";
import { DatabaseStateError, migrateCommand } from "./database-errors.ts";
import { configOf, isSqlite } from "./knex-internals.ts";
import { databaseDefaults, openDatabase } from "./open.ts";
import { requireFile, requireWritable } from "./sqlite.ts";

/** A step of a schema. The names sort in the order of the steps, as in `0001_stock`. */
export interface Migration {
  readonly name: string;
  /** The tables whose rows are lost when `down` takes the step back. */
  readonly drops?: readonly string[];
  /** Chooses the rows that are lost, where `down` keeps others; by default all are. */
  readonly dropped?: (rows: Knex.QueryBuilder) => Knex.QueryBuilder;
  /** The column whose values are lost when `down` takes the step back, and its value in a row that loses nothing. */
  readonly dropsColumn?: { readonly table: string; readonly column: string; readonly unset: string | number | null };
  up(db: Knex): Promise<void>;
  down(db: Knex): Promise<void>;
}

/** A step that is to be taken back, and what that loses. */
export interface StepBack {
  readonly step: string;
  /** Numbers of rows by table, of tables with rows only. */
  readonly rows: ReadonlyMap<string, number>;
  /** Numbers of values by column, as `api_keys.pepper`, of columns with values only. */
  readonly values: ReadonlyMap<string, number>;
}

/** How long a process waits for another one that migrates the same database. */
const lockWaitSeconds = 60;

/** A statement that changes a large table can run this long without an answer. */
const statementTimeoutMs = 60 * 60_000;

/** The schema has steps that this version does not know, so it can only stay as it is. */
export class LaterSchemaError extends DatabaseStateError {}

/** Migrates as `migrate` does, over a connection of its own that waits for long statements. Makes a missing file. */
export async function migrateDatabase(
  url: string,
  schema: string,
  migrations: readonly Migration[],
  direction: "up" | "down" = "up",
  confirm?: (back: StepBack) => void,
): Promise<string[]> {
  return await onOwnConnection(url, (db) => migrate(db, schema, migrations, direction, confirm));
}

/**
 * Brings the schema of an existing database up to date for a command that works on it. One that has all steps already
 * stays as it is and nothing is written. So read-only commands work on a full disk. And after a roll-back of the
 * code the commands of the previous version work with the later schema, as its services do.
 */
export async function updateSchema(url: string, schema: string, migrations: readonly Migration[]): Promise<void> {
  if (url.startsWith("sqlite:")) requireFile(url.slice("sqlite:".length));
  await onOwnConnection(url, async (db) => {
    if (!(await hasSteps(db, schema, migrations))) await migrate(db, schema, migrations, "up");
  });
}

async function onOwnConnection<T>(url: string, work: (db: Knex) => Promise<T>): Promise<T> {
  const ownOptions = { poolMax: 1, silenceTimeoutMs: statementTimeoutMs, makesFile: true };
  const db = openDatabase(url, { ...databaseDefaults, ...ownOptions });
  try {
    return await work(db);
  } finally {
    await db.destroy();
  }
}

/**
 * Brings a schema up to date, or reverts its last step.
 *
 * Several processes may do this at once: they queue for a lock, which is released when the process that holds it dies.
 *
 * @param db with one connection
 * @param schema names the schema, so that several can share one database
 * @param confirm gets each step before it is taken back; an error that it throws keeps the step
 * @returns the names of the steps taken, in order
 * @throws DatabaseStateError for a schema of a later version, or one of which a step was taken back by half
 */
export async function migrate(
  db: Knex,
  schema: string,
  migrations: readonly Migration[],
  direction: "up" | "down",
  confirm: (back: StepBack) => void = () => {},
): Promise<string[]> {
  const tableName = `${schema}_migrations`;
  const options: Knex.MigratorConfig = {
    tableName,
    disableMigrationsListValidation: true, // what follows says it in terms of versions
    migrationSource: {
      getMigrations: async () => [...migrations],
      getMigrationName: (migration: Migration) => migration.name,
      getMigration: async ({ name, up, down }: Migration) => ({
        up: locked(up),
        down: locked(async (trx) => {
          // Marks the step first: on MySQL the first schema statement of `down` commits the mark with it.
          await trx(tableName).where({ name }).update({ batch: beingTakenBack });
          await down(trx);
        }),
      }),
    },
  };
  return await withMigrationLock(db, async () => {
    // Knex marks a running migration in a table, and a process that dies leaves its mark there. While this process
    // holds our lock, no other one migrates, so the mark can go.
    await db.migrate.forceFreeMigrationsLock(options);
    const [taken]: { name: string }[][] = await db.migrate.list(options);
    const unknown = taken!.map(({ name }) => name).filter((name) => !migrations.some((step) => step.name === name));
    if (unknown.length > 0) {
      throw new LaterSchemaError(`a later version has made ${unknown.join(", ")}, and it alone can take that back`);
    }
    const last = migrations.find(({ name }) => name === taken!.at(-1)?.name);
    if (direction === "down") {
      if (last) {
        confirm({ step: last.name, rows: await rowsDroppedBy(db, last), values: await valuesDroppedBy(db, last) });
      }
      return (await db.migrate.down(options))[1];
    }
    const half = await db(tableName).where({ batch: beingTakenBack }).first("name");
    if (half) {
      const finish = migrateCommand("--down", "--only", schema);
      throw new DatabaseStateError(`${half.name} was taken back by half: ${finish} finishes that`);
    }
    return (await db.migrate.latest(options))[1];
  });
}

async function hasSteps(db: Knex, schema: string, migrations: readonly Migration[]): Promise<boolean> {
  const table = `${schema}_migrations`;
  if (!(await db.schema.hasTable(table))) return false;
  const taken: string[] = await db(table).whereNot({ batch: beingTakenBack }).pluck("name");
  return migrations.every(({ name }) => taken.includes(name));
}

/** The number of a batch that marks a step while it is taken back. Knex counts batches from 1. */
const beingTakenBack = 0;

async function rowsDroppedBy(db: Knex, step: Migration): Promise<Map<string, number>> {
  const rows = new Map<string, number>();
  for (const table of step.drops ?? []) {
    if (!(await db.schema.hasTable(table))) continue; // an earlier attempt has dropped it
    const count = await countOf((step.dropped ?? ((all) => all))(db(table)));
    if (count > 0) rows.set(table, count);
  }
  return rows;
}

async function valuesDroppedBy(db: Knex, { dropsColumn }: Migration): Promise<Map<string, number>> {
  if (!dropsColumn) return new Map();
  const { table, column, unset } = dropsColumn;
  // An earlier attempt may have dropped it, or moved its table out of the way.
  if (!((await db.schema.hasTable(table)) && (await db.schema.hasColumn(table, column)))) return new Map();
  const count = await countOf(db(table).whereNot({ [column]: unset }));
  return new Map(count > 0 ? [[`${table}.${column}`, count]] : []);
}

async function countOf(rows: Knex.QueryBuilder): Promise<number> {
  const [counted] = await rows.count({ count: "*" });
  return Number(counted.count);
}

/**
 * Makes a table under a draft name and renames it once it is complete; a table that exists already stays as it is.
 * MySQL commits every statement of a schema by itself, so the next run must be able to finish a migration that died
 * between two statements.
 *
 * @param fill writes the first rows; the table has the name `draft` until they are in it
 */
export async function createTable(
  db: Knex,
  name: string,
  build: (table: Knex.CreateTableBuilder) => void,
  fill: (draft: string) => PromiseLike<unknown> = async () => {},
): Promise<void> {
  if (await db.schema.hasTable(name)) return;
  const draft = `${name}_draft`;
  await db.schema.dropTableIfExists(draft);
  await db.schema.createTable(draft, build);
  await fill(draft);
  await db.schema.renameTable(draft, name);
}

/** Drops a column, unless an earlier attempt has done so. Knex would build the whole table again on SQLite. */
export async function dropColumn(db: Knex, table: string, column: string): Promise<void> {
  if (await db.schema.hasColumn(table, column)) await db.raw("alter table ?? drop column ??", [table, column]);
}

async function withMigrationLock<T>(db: Knex, work: () => Promise<T>): Promise<T> {
  return isSqlite(db) ? await withSqliteLock(db, work) : await withMysqlLock(db, work);
}

/** A lock's name may have 64 characters, as a database's name may, so the name of the database goes in as a hash. */
const lockName = "CONCAT('petstore-migrate:', LEFT(SHA2(DATABASE(), 256), 40))";

/** The variable of a session that says whether it has the lock; it ends with its session, as the lock does. */
const hasLock = "@petstore_migrates";

/**
 * The server ends the session after this time without a statement: its process is frozen, or lost with its machine. A
 * statement that runs is no silence, however long it takes and whether or not its process still lives.
 */
const silenceSeconds = 10;

/** Runs steps over the connection that holds the lock: if that is lost, no step begins over another one. */
async function withMysqlLock<T>(db: Knex, work: () => Promise<T>): Promise<T> {
  await db.raw(`SET SESSION wait_timeout = ${silenceSeconds}`);
  const [[taken]] = await db.raw(`SELECT GET_LOCK(${lockName}, ?)`, [lockWaitSeconds]);
  // By its place, because VTGate gives the column a name of its own.
  await db.raw(`SET ${hasLock} = ?`, [Number(Object.values(taken)[0])]);
  await requireLock(db, "another process has been migrating this database for too long");
  try {
    return await work();
  } finally {
    await db.raw(`SELECT RELEASE_LOCK(${lockName})`).catch(() => {});
  }
}

function locked(take: Migration["up"]): Migration["up"] {
  return async (db) => {
    await requireLock(db, "the connection that held the lock of migrations was lost: run this again");
    await take(db);
  };
}

async function requireLock(db: Knex, otherwise: string): Promise<void> {
  if (isSqlite(db)) return;
  const [[row]] = await db.raw(`SELECT ${hasLock} AS held`);
  if (Number(row.held) !== 1) throw new DatabaseStateError(otherwise);
}

async function withSqliteLock<T>(db: Knex, work: () => Promise<T>): Promise<T> {
  const { filename } = configOf(db).connection as { filename: string };
  if (filename === ":memory:") return await work();
  const lock = `${filename}.migrate-lock`;
  for (const file of [filename, lock]) requireWritable(file);
  const holder = new Sqlite(lock, { timeout: lockWaitSeconds * 1_000 });
  try {
    holder.exec("BEGIN EXCLUSIVE");
    return await work();
  } finally {
    holder.close();
  }
}
