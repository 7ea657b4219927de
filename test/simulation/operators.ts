/** What operators and their commands do to the databases of a run. */
import type { Knex } from "knex";
import { createKeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import { Host, runIn } from "./virtual-time.ts";

/** Keeps all writers waiting with another transaction, as an import does. */
export function lockHead(forMs: number): Promise<void> {
  return runWith("stock", "importer", async (db) => {
    const work = db.transaction(async (transaction) => {
      await transaction("stock_head").where({ id: 1 }).forUpdate().first("revision");
      await new Promise((resolve) => setTimeout(resolve, forMs));
    });
    await work.catch(() => {}); // other faults may hit it
  });
}

/** Revokes all keys of an account, as `npm run keys -- revoke` does: a rotation meanwhile makes another one. */
export function revokeKeys(account: string): Promise<void> {
  return runWith("keys", "operator", (db) => {
    const admin = createKeyAdmin(db, Date.now);
    return untilDone(() => admin.revokeAll(account));
  });
}

/** Deletes the record of the change before the latest one, as the clean-up does when it comes to that first. */
export function forgetOneBeforeLast(): Promise<void> {
  return runWith("stock", "clean-up", async (db) => {
    const latest = await db("stock_ledger").orderBy("id", "desc").first("id");
    await db("stock_ledger")
      .where({ id: latest.id - 1n })
      .delete();
  });
}

/** Begins an epoch of the stock, as `npm run stock -- restored` does. */
export function beginEpoch(): Promise<void> {
  return runWith("stock", "operator", (db) => {
    const store = new StockStore(db);
    return untilDone(() => store.beginEpoch());
  });
}

/** Works on a database from a host of its own. */
function runWith(name: "stock" | "keys", host: string, work: (db: Knex) => Promise<void>): Promise<void> {
  return runIn(new Host(host), async () => {
    const db = openDatabase(`mysql://petstore:petstore@${name}/${name}`, databaseDefaults);
    await work(db);
    await db.destroy();
  });
}

/** Repeats what an operator does while other faults make it fail. */
async function untilDone(work: () => Promise<unknown>): Promise<void> {
  for (let isDone = false; !isDone; ) {
    isDone = await work().then(
      () => true,
      () => false,
    );
  }
}
