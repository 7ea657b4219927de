import { isDeepStrictEqual } from "node:util";
import type { Knex } from "knex";
import type { Connection } from "mysql2/promise";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, hashKey, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { createKeyStore } from "../../gateway/accounts/keys/key-store.ts";
import { StockUnavailableError } from "../../inventory-svc/stock/stock-errors.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { ReadOnlyServerError } from "../../runtime/database/database-errors.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { startPrivateDatabaseServer } from "../support/database-server.ts";
import { connectMysql, createDatabaseOn } from "../support/mysql-client.ts";
import { isOnMysql } from "../support/mysqld.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

const pepper = "a pepper of more than 32 characters";

describe("an old primary", () => {
  const stack = suiteStack();
  const key = createKey("test", pepper);
  let url: string;
  let db: Knex;
  let operator: Connection;
  const setReadOnly = async (value: 0 | 1) => void (await operator.query(`SET GLOBAL read_only = ${value}`));

  beforeAll(async () => {
    const server = await startPrivateDatabaseServer();
    stack.defer(() => server.stop());
    url = await createDatabaseOn(server.url(""));
    db = openDatabase(url);
    stack.defer(() => db.destroy());
    await migrate(db, "inventory", stockMigrations, "up");
    await migrate(db, "gateway", gatewayMigrations, "up");
    await createKeyAdmin(db, Date.now).issue({ account: "acme", ...storedKey(key, pepper) });
    operator = await connectMysql(url);
    stack.defer(() => operator.end());
  });
  afterEach(() => setReadOnly(0));

  test("a server that became read-only answers no check of the stock, as its position may be old", async () => {
    const store = new StockStore(db);
    const position = await store.position();
    await store.write([{ kind: "put", petId: 1n, quantity: 5, status: "available" }]);
    await setReadOnly(1);
    await expect(store.position()).rejects.toThrow(StockUnavailableError);
    await expect(store.changesAfter(position, 100)).rejects.toThrow(StockUnavailableError);
    await setReadOnly(0);
    expect(await store.changesAfter(position, 100)).toMatchObject({
      kind: "changes",
      rows: [{ petId: 1n, quantity: 5 }],
    });
  });

  test.each([
    ["that there is", 1n],
    ["that there is not", 2n],
  ])(
    "a database server that became read-only answers no read of an entry %s, nor of the list",
    async (_what, petId) => {
      const store = new StockStore(db);
      await store.write([{ kind: "put", petId: 1n, quantity: 5, status: "available" }]);
      await setReadOnly(1);
      await expect(store.get(petId)).rejects.toThrow(StockUnavailableError);
      await expect(store.getMany([petId])).rejects.toThrow(StockUnavailableError);
      await expect(store.rowsAfter(undefined, 100)).rejects.toThrow(StockUnavailableError);
      await setReadOnly(0);
      expect((await store.get(petId))?.quantity).toBe(petId === 1n ? 5 : undefined);
    },
  );

  test("a write leaves a server that became read-only and is behind what the process knows", async () => {
    const store = new StockStore(db);
    await store.write([{ kind: "put", petId: 3n, quantity: 5, status: "available" }]);
    await setReadOnly(1);
    await operator.query("UPDATE stock_head SET revision = revision - 1");
    const late = store.write([{ kind: "put", petId: 3n, quantity: 6, status: "available" }]);
    await expect(late).rejects.toThrow(StockUnavailableError);
    await operator.query("UPDATE stock_head SET revision = revision + 1");
    await setReadOnly(0);
    await store.write([{ kind: "put", petId: 3n, quantity: 7, status: "available" }]);
    expect((await store.get(3n))?.quantity).toBe(7);
  });

  test("a server that became read-only is refused when a connection opens, with what mends it", async () => {
    await setReadOnly(1);
    const replica = openDatabase(url);
    await expect(replica.raw("SELECT 1")).rejects.toThrow("the URL has to lead to the primary");
    await replica.destroy();
  });

  test.each([
    ["a key that it knows, which may be revoked elsewhere", key],
    ["a key that it does not know, which may be issued elsewhere", createKey("test", pepper)],
  ])("a database server that became read-only answers no look-up of %s", async (_what, token) => {
    const keys = createKeyStore(db);
    await setReadOnly(1);
    await expect(keys.findByHash(hashKey(token, pepper))).rejects.toThrow(ReadOnlyServerError);
    await setReadOnly(0);
    expect((await keys.findByHash(hashKey(token, pepper)))?.plan).toBe(token === key ? "free" : undefined);
  });

  (isOnMysql ? test : test.skip)(
    "a server answers nothing while MySQL waits for a lock of a table before it is read-only",
    async () => {
      const store = new StockStore(db);
      await using lock = new AsyncDisposableStack();
      const holder = await connectMysql(url);
      lock.defer(() => holder.end()); // which unlocks the table, also after a failure
      await holder.query("LOCK TABLES deprecated_use WRITE");
      const switched = operator.query("SET GLOBAL super_read_only = 1");
      const flags = async () => await holder.query("SELECT @@super_read_only AS super, @@read_only AS plain");
      await until(async () => isDeepStrictEqual((await flags())[0], [{ super: 1, plain: 0 }]));
      await expect(store.position()).rejects.toThrow(StockUnavailableError);
      const late = openDatabase(url);
      await expect(late.raw("SELECT 1")).rejects.toThrow("the URL has to lead to the primary");
      await late.destroy();
      await holder.query("UNLOCK TABLES");
      await switched;
    },
  );

  test("a server that became read-only is left for a new connection, maybe to the new primary", async () => {
    const connectionId = async () => Number((await db.raw("SELECT CONNECTION_ID() AS id"))[0][0].id);
    const before = await connectionId();
    await setReadOnly(1);
    await expect(new StockStore(db).position()).rejects.toThrow(StockUnavailableError);
    await setReadOnly(0);
    expect(await connectionId()).not.toBe(before);
  });
});
