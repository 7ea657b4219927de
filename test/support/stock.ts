import { setTimeout as delay } from "node:timers/promises";
import Sqlite from "better-sqlite3";
import type { Knex } from "knex";
import { stockMigrations } from "../../inventory-svc/db/migrations.ts";
import { StockStore } from "../../inventory-svc/stock/store.ts";
import { type DatabaseOptions, openDatabase } from "../../runtime/database.ts";
import { migrate } from "../../runtime/migrations.ts";
import { connectMysql } from "./mysql-client.ts";

export interface OpenStock {
  readonly db: Knex;
  readonly store: StockStore;
  close(): Promise<void>;
}

export function openStock(url: string, options?: DatabaseOptions): OpenStock {
  const db = openDatabase(url, options);
  return { db, store: new StockStore(db), close: () => db.destroy() };
}

export async function migrateStock(url: string): Promise<void> {
  const db = openDatabase(url);
  try {
    await migrate(db, "inventory", stockMigrations, "up");
  } finally {
    await db.destroy();
  }
}

/** The file of a SQLite database. */
export const sqliteFile = (url: string): string => url.slice("sqlite:".length);

export interface HeldLock {
  /** How many transactions wait for a lock of this database. Only MySQL can tell. */
  waiting(): Promise<number>;
  release(): Promise<void>;
}

/** Takes the lock that every write of the stock takes first, so that writes wait until it is released. */
export async function holdWriteLock(url: string): Promise<HeldLock> {
  if (url.startsWith("sqlite:")) {
    const file = new Sqlite(sqliteFile(url));
    file.exec("BEGIN IMMEDIATE");
    return { waiting: async () => 0, release: async () => void file.close() };
  }
  const connection = await connectMysql(url);
  await connection.query("BEGIN");
  await connection.query("UPDATE stock_head SET revision = revision");
  return { waiting: () => waitingFor(url), release: () => connection.end() };
}

async function waitingFor(url: string): Promise<number> {
  const connection = await connectMysql(url);
  try {
    const [rows] = await connection.query(
      `SELECT COUNT(*) AS waiting FROM information_schema.innodb_trx t
       JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
       WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()`,
    );
    return Number((rows as { waiting: number }[])[0]!.waiting);
  } finally {
    await connection.end();
  }
}

/** Resolves once `check` holds, for what gives no event. Rejects after `timeoutMs`. */
export async function until(check: () => Promise<boolean> | boolean, timeoutMs = 10_000): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  while (!(await check())) {
    if (Date.now() > deadline) throw new Error(`did not come true in ${timeoutMs} ms: ${check}`);
    await delay(10);
  }
}
