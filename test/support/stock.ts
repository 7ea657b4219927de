import Sqlite from "better-sqlite3";
import type { Knex } from "knex";
import { stockMigrations } from "../../inventory-svc/db/migrations.ts";
import { StockStore } from "../../inventory-svc/stock/store.ts";
import { type DatabaseOptions, openDatabase } from "../../runtime/database.ts";
import { migrate } from "../../runtime/migrations.ts";
import { connectMysql } from "./mysql-client.ts";
import { until } from "./until.ts";

export interface OpenStock {
  readonly db: Knex;
  readonly store: StockStore;
  /** Takes everything out of the stock, which is then at revision 0. */
  empty(): Promise<void>;
  close(): Promise<void>;
}

/** @param now Unix milliseconds; default: the clock */
export function openStock(url: string, options?: DatabaseOptions, now?: () => number): OpenStock {
  const db = openDatabase(url, options);
  return {
    db,
    store: new StockStore(db, now),
    empty: async () => {
      for (const table of ["stock", "stock_adjustments"]) await db(table).delete();
      await db("stock_head").update({ revision: 0 });
    },
    close: () => db.destroy(),
  };
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

/** Resolves once a statement that begins like this runs in a MySQL database: at a held lock it can only wait. */
export async function untilRunning(url: string, beginning: string): Promise<void> {
  const connection = await connectMysql(url);
  const question = `SELECT COUNT(*) AS running FROM information_schema.processlist
    WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command = 'Query' AND info LIKE ?`;
  try {
    await until(async () => {
      const [rows] = await connection.query(question, [`${beginning}%`]);
      return Number((rows as { running: number }[])[0]!.running) > 0;
    });
  } finally {
    await connection.end();
  }
}
