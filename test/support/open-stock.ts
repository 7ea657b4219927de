import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createRequire } from "node:module";
import { setTimeout } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import Sqlite from "better-sqlite3";
import type { Knex } from "knex";
import { ledgerSteps } from "../../inventory-svc/stock/cleanup.ts";
import { ListFeed } from "../../inventory-svc/stock/list-feed.ts";
import { Retention } from "../../inventory-svc/stock/retention.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import type { Item } from "../../proto/pet.ts";
import { isSqlite } from "../../runtime/database/knex-internals.ts";
import { migrate, migrateDatabase } from "../../runtime/database/migrations.ts";
import { type DatabaseOptions, openDatabase } from "../../runtime/database/open.ts";
import { connectMysql } from "./mysql-client.ts";
import type { Stack } from "./stack.ts";
import { until } from "./until.ts";

export interface OpenStock {
  readonly db: Knex;
  readonly store: StockStore;
  readonly retention: Retention;
  /** Empties the stock, which is then at revision 0 of a new epoch. */
  empty(): Promise<void>;
  close(): Promise<void>;
}

/** Opens a stock on its database. */
export function openStock(url: string, options?: DatabaseOptions): OpenStock {
  const db = openDatabase(url, options);
  return {
    db,
    store: new StockStore(db),
    retention: new Retention(db),
    empty: async () => {
      for (const table of ["stock", "stock_ledger", "stock_times"]) await db(table).delete();
      await db("stock_head").update({ revision: 0, floor: 0, epoch: randomUUID() });
    },
    close: () => db.destroy(),
  };
}

/** Deletes all old changes from the ledger, with pauses in which writers get in between. */
export async function deleteOldChanges(retention: Retention, ageMs: number): Promise<void> {
  for (const step of ledgerSteps(retention, ageMs)) while (await step()) await setTimeout(50);
}

/** Reads every entry in the order of petId, in pages. */
export async function* pagesOf(store: StockStore, pageSize: number): AsyncGenerator<readonly Item[]> {
  for await (const { rows } of new ListFeed(store, pageSize).load(undefined)) {
    const page = rows.filter(({ removed }) => !removed);
    if (page.length > 0) yield page;
  }
}

/** Brings the schema of a stock up to date. */
export async function migrateStock(url: string): Promise<void> {
  await migrateDatabase(url, "inventory", stockMigrations);
}

/** Opens a stock with its schema up to date, and closes it after the suite. */
export async function openMigratedStock(stack: Stack, url: string, options?: DatabaseOptions): Promise<OpenStock> {
  await migrateStock(url);
  const stock = openStock(url, options);
  stack.defer(() => stock.close());
  return stock;
}

/** Opens a stock in memory for a suite, which ends it. It is empty before each test. */
export function suiteStock(): OpenStock {
  const stock = openStock("sqlite::memory:");
  beforeAll(() => migrate(stock.db, "inventory", stockMigrations, "up"));
  beforeEach(stock.empty);
  afterAll(stock.close);
  return stock;
}

/** Collects the statements that `work` sends. @param work is given those that were sent so far */
export async function statementsOf(db: Knex, work: (sent: readonly string[]) => Promise<unknown>): Promise<string[]> {
  const sent: string[] = [];
  const note = ({ sql }: { sql: string }) => sent.push(sql);
  db.on("query", note);
  await work(sent);
  db.off("query", note);
  return sent;
}

/** Returns the path of a SQLite database. */
export const sqliteFile = (url: string): string => url.slice("sqlite:".length);

/**
 * Makes the last statement of a write with adjustments fail with an error that does not name the statement.
 * @returns a function that ends this
 */
export async function failAdjustments(db: Knex): Promise<() => Promise<void>> {
  const fault = isSqlite(db)
    ? "SELECT RAISE(ABORT, 'a fault')"
    : "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a fault'";
  await db.raw(`CREATE TRIGGER fault BEFORE INSERT ON stock_ledger FOR EACH ROW BEGIN ${fault}; END`);
  return async () => void (await db.raw("DROP TRIGGER fault"));
}

export interface HeldLock {
  release(): Promise<void>;
}

/** Takes the lock that every write of the stock takes first, so that writes wait until it is released. */
export async function holdWriteLock(url: string): Promise<HeldLock> {
  if (url.startsWith("sqlite:")) {
    const file = new Sqlite(sqliteFile(url));
    file.exec("BEGIN IMMEDIATE");
    return { release: async () => void file.close() };
  }
  const connection = await connectMysql(url);
  await connection.query("BEGIN");
  await connection.query("UPDATE stock_head SET revision = revision");
  return { release: () => connection.end() };
}

/**
 * Takes the lock that every write of the stock takes first, and releases it after some time, even while this thread
 * waits for it, as it does on SQLite.
 */
export async function holdLockFor(url: string, durationMs: number): Promise<{ readonly released: Promise<void> }> {
  if (!url.startsWith("sqlite:")) {
    const lock = await holdWriteLock(url);
    return { released: setTimeout(durationMs).then(lock.release) };
  }
  const code = `
    const { parentPort, workerData: [module, file, durationMs] } = require("node:worker_threads");
    const lock = new (require(module))(file);
    lock.exec("BEGIN IMMEDIATE");
    parentPort.postMessage("held");
    setTimeout(() => lock.close(), durationMs);
  `;
  const module = createRequire(import.meta.url).resolve("better-sqlite3");
  const worker = new Worker(code, { eval: true, workerData: [module, sqliteFile(url), durationMs] });
  const released = once(worker, "exit").then(() => {});
  await once(worker, "message");
  return { released };
}

/**
 * Resolves once a statement that begins with one of these words runs in a MySQL database. While a test holds the write
 * lock, such a statement is waiting for it.
 *
 * @returns the id of its connection
 */
export async function untilRunning(url: string, ...words: string[]): Promise<number> {
  const connection = await connectMysql(url);
  const question = `SELECT id FROM information_schema.processlist
    WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command = 'Query' AND info REGEXP ?`;
  let running: { id: number }[] = [];
  try {
    await until(async () => {
      const [rows] = await connection.query(question, [`^(${words.join("|")}) `]);
      running = rows as never;
      return running.length > 0;
    });
    return running[0]!.id;
  } finally {
    await connection.end();
  }
}
