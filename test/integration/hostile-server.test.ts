import type { Connection } from "mysql2/promise";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { createKeyStore } from "../../gateway/accounts/keys/key-store.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { type Migration, migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { startPrivateDatabaseServer } from "../support/database-server.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { pagesOf } from "../support/open-stock.ts";
import { suiteStack } from "../support/stack.ts";

const hostile = [
  "SET GLOBAL autocommit = 0",
  "SET GLOBAL completion_type = CHAIN",
  "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
  "SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
  "SET GLOBAL sql_select_limit = 1",
  "SET GLOBAL sql_safe_updates = 1",
  "SET GLOBAL innodb_lock_wait_timeout = 50",
  "SET GLOBAL time_zone = '+05:00'",
  "SET GLOBAL default_storage_engine = MyISAM",
  "SET GLOBAL character_set_server = latin1",
  "SET GLOBAL wait_timeout = 2",
];

describe("a hostile database server", () => {
  const stack = suiteStack();
  let url: string;
  let operator: Connection;
  const open = () => {
    const db = openDatabase(url);
    stack.defer(() => db.destroy());
    return db;
  };

  beforeAll(async () => {
    const server = await startPrivateDatabaseServer();
    stack.defer(() => server.stop());
    url = await server.createDatabase();
    operator = await connectMysql(url); // before the defaults change
    stack.defer(() => operator.end());
    for (const statement of hostile) await operator.query(statement);
    const db = open();
    await migrate(db, "inventory", stockMigrations, "up");
    await migrate(db, "gateway", gatewayMigrations, "up");
  });

  test("a database server with hostile defaults gets tables that have transactions", async () => {
    const [tables] = await operator.query(
      "SELECT DISTINCT engine AS engine FROM information_schema.tables WHERE table_schema = DATABASE()",
    );
    expect(tables).toEqual([{ engine: "InnoDB" }]);
  });

  test("a server with hostile defaults does not end the lock of migrations during a long step", async () => {
    const isHeld = "IS_USED_LOCK(CONCAT('petstore-migrate:', LEFT(SHA2(DATABASE(), 256), 40))) IS NOT NULL";
    const found: unknown[] = [];
    const slow: Migration = {
      name: "0001_slow",
      up: async (db) => {
        let silentIsClosed = false;
        const silent = await connectMysql(url); // after the lock was taken
        silent.on("error", () => {
          silentIsClosed = true;
        });
        while (!silentIsClosed) await db.raw("SELECT SLEEP(0.1)");
        found.push((await operator.query(`SELECT ${isHeld} AS held`))[0]);
      },
      down: async () => {},
    };
    expect(await migrate(open(), "slow", [slow], "up")).toEqual(["0001_slow"]);
    expect(found).toEqual([[{ held: 1 }]]);
  });

  test("a server with hostile defaults keeps an update and a new epoch once they are acknowledged", async () => {
    const store = new StockStore(open());
    const { epoch } = await store.position();
    await store.write([
      { kind: "put", petId: 1n, quantity: 5, status: "available" },
      { kind: "put", petId: 2n, quantity: 6, status: "available" },
    ]);
    const begun = await store.beginEpoch();
    expect(begun.epoch).not.toBe(epoch);
    const [rows] = await operator.query("SELECT quantity FROM stock ORDER BY pet_id");
    expect(rows).toEqual([{ quantity: 5 }, { quantity: 6 }]);
    expect((await operator.query("SELECT epoch FROM stock_head"))[0]).toEqual([{ epoch: begun.epoch }]);
    expect(await Array.fromAsync(pagesOf(store, 10))).toMatchObject([[{ petId: 1n }, { petId: 2n }]]);
  });

  test("a database server with hostile defaults keeps a key once it is issued, and its revocation", async () => {
    const pepper = "a pepper of more than 32 characters";
    const stored = storedKey(createKey("test", pepper), pepper);
    const admin = createKeyAdmin(open(), Date.now);
    const { keyId } = await admin.issue({ account: "acm\u00e9", ...stored });
    const keys = createKeyStore(open());
    expect(await keys.findByHash(stored.keyHash)).toMatchObject({ keyId });
    await admin.revoke(keyId);
    expect(await keys.findByHash(stored.keyHash)).toBeNull();
    const [rows] = await operator.query("SELECT revoked_at IS NOT NULL AS revoked FROM api_keys");
    expect(rows).toEqual([{ revoked: 1 }]);
  });
});
