import type { Knex } from "knex";
import { createKeyAdmin } from "../../gateway/accounts/key-admin.ts";
import { keyMigrations } from "../../gateway/accounts/migrations.ts";
import { createKey, hashKey } from "../../gateway/auth/key-format.ts";
import { createKeyStore } from "../../gateway/auth/key-store.ts";
import { StockUnavailableError } from "../../inventory-svc/stock/errors.ts";
import { stockMigrations } from "../../inventory-svc/stock/migrations.ts";
import { StockStore } from "../../inventory-svc/stock/store.ts";
import { ReadOnlyServerError } from "../../runtime/database/errors.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { suiteStack } from "../support/cleanup.ts";
import { startPrivateDatabaseServer } from "../support/database-server.ts";
import { connectMysql, createDatabaseOn } from "../support/mysql-client.ts";

const pepper = "a pepper of more than 32 characters";

describe("a database server that became read-only in a planned switch", () => {
  const stack = suiteStack();
  const key = createKey("test");
  let url: string;
  let db: Knex;
  let setReadOnly: (value: 0 | 1) => Promise<void>;

  beforeAll(async () => {
    const server = await startPrivateDatabaseServer();
    stack.defer(() => server.stop());
    url = await createDatabaseOn(server.url(""));
    db = openDatabase(url);
    stack.defer(() => db.destroy());
    await migrate(db, "inventory", stockMigrations, "up");
    await migrate(db, "gateway", keyMigrations, "up");
    await createKeyAdmin(db, Date.now).issue({ account: "acme", env: "test", keyHash: hashKey(key, pepper) });
    const operator = await connectMysql(url);
    stack.defer(() => operator.end());
    setReadOnly = async (value) => void (await operator.query(`SET GLOBAL read_only = ${value}`));
  });
  afterEach(() => setReadOnly(0));

  test("answers no check of the stock, because its position may be old", async () => {
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
  ])("answers no read of an entry %s, nor of the list", async (_what, petId) => {
    const store = new StockStore(db);
    await store.write([{ kind: "put", petId: 1n, quantity: 5, status: "available" }]);
    await setReadOnly(1);
    await expect(store.get(petId)).rejects.toThrow(StockUnavailableError);
    await expect(store.getMany([petId])).rejects.toThrow(StockUnavailableError);
    await expect(Array.fromAsync(store.pages(100))).rejects.toThrow(StockUnavailableError);
    await setReadOnly(0);
    expect((await store.get(petId))?.quantity).toBe(petId === 1n ? 5 : undefined);
  });

  test("is refused as soon as a connection opens, with what mends it", async () => {
    await setReadOnly(1);
    const replica = openDatabase(url);
    await expect(replica.raw("SELECT 1")).rejects.toThrow("the URL has to lead to the primary");
    await replica.destroy();
  });

  test.each([
    ["a key that it knows, which may be revoked elsewhere", key],
    ["a key that it does not know, which may be issued elsewhere", createKey("test")],
  ])("answers no look-up of %s", async (_what, token) => {
    const keys = createKeyStore(db, Date.now);
    await setReadOnly(1);
    await expect(keys.findByHash(hashKey(token, pepper))).rejects.toThrow(ReadOnlyServerError);
    await setReadOnly(0);
    expect((await keys.findByHash(hashKey(token, pepper)))?.plan).toBe(token === key ? "free" : undefined);
  });

  test("is left for a new connection, which may lead to the new primary", async () => {
    const connectionId = async () => Number((await db.raw("SELECT CONNECTION_ID() AS id"))[0][0].id);
    const before = await connectionId();
    await setReadOnly(1);
    await expect(new StockStore(db).position()).rejects.toThrow(StockUnavailableError);
    await setReadOnly(0);
    expect(await connectionId()).not.toBe(before);
  });
});
