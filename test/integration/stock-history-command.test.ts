import type { Actor } from "../../inventory-svc/stock/change.ts";
import { createMysqlDatabase, describeEachDatabase, dropDatabase } from "../support/databases.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { openMigratedStock, openStock } from "../support/open-stock.ts";
import { cleanup, runScript } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { create, range, update } from "../support/stock-changes.ts";

const script = "inventory-svc/cli/stock.ts";

describeEachDatabase("npm run stock -- history", (url) => {
  const stack = suiteStack();
  stack.defer(cleanup);
  const run = (...args: string[]) =>
    runScript({ script, args: ["history", ...args], env: { INVENTORY_DATABASE_URL: url() } });
  beforeAll(async () => {
    const { store } = await openMigratedStock(stack, url());
    await store.write([{ kind: "create", petId: -7n, quantity: 3, status: "pending" }]);
    const actors: [Actor, string?][] = [
      [{ kind: "account", account: "acc_1", keyId: "key_1" }, "request-1"],
      [{ kind: "internal", role: "writer", name: "spiffe://petstore/shop" }],
      [{ kind: "internal" }],
    ];
    for (const [i, [actor, originRequestId]] of actors.entries()) {
      const change = { kind: "update", petId: -7n, quantity: i, reason: originRequestId && "order 17" } as const;
      await store.writeWanted([
        { group: { changes: [change], origin: { actor, originRequestId } }, isWanted: () => true },
      ]);
    }
    await store.write([
      { kind: "update", petId: -7n, status: "sold" },
      { kind: "remove", petId: -7n },
    ]);
    await store.write(range(1, 25).map((petId) => create(petId)));
    await store.write(range(1, 25).map((petId) => update(25n, Number(petId) + 1)));
  });
  const history = async (...args: string[]) => {
    const { code, stdout, stderr } = await run(...args);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return stdout.trimEnd().split("\n");
  };

  test("the history of an entry names who changed it and why, the newest change first", async () => {
    const [headings, ...rows] = await history("-7");
    expect(headings!.split(/ {2,}/)).toEqual([
      "TIME",
      "REVISION",
      "KIND",
      "QUANTITY",
      "STATUS",
      "BY",
      "REQUEST",
      "REASON",
    ]);
    const cells = rows.map((row) => row.split(/ {2,}/));
    for (const [time] of cells) expect(Date.now() - Date.parse(time!)).toBeLessThan(120_000);
    expect(cells.map(([_, ...rest]) => rest)).toEqual([
      ["6", "remove", "2 → -", "sold → -", "operator", "-", "-"],
      ["5", "status", "2 → 2", "pending → sold", "operator", "-", "-"],
      ["4", "set", "1 → 2", "pending → pending", "internal", "-", "-"],
      ["3", "set", "0 → 1", "pending → pending", "internal writer spiffe://petstore/shop", "-", "-"],
      ["2", "set", "3 → 0", "pending → pending", "account acc_1, key_1", "request-1", "order 17"],
      ["1", "create", "- → 3", "- → pending", "operator", "-", "-"],
    ]);
  });

  test("npm run stock -- remove takes an entry away as an operator, and says when there is none", async () => {
    const remove = () => runScript({ script, args: ["remove", "23"], env: { INVENTORY_DATABASE_URL: url() } });
    expect(await remove()).toEqual({ code: 0, stdout: "", stderr: "entry 23 removed\n" });
    const [, latest] = await history("23");
    expect(latest).toMatch(/ remove +1 → - +\S+ → - +operator /);
    expect(await remove()).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/there is no entry with petId 23\n$/),
    });
  });

  test("the history of an entry has 20 changes, or as many as --limit says", async () => {
    expect(await history("25")).toHaveLength(1 + 20);
    expect(await history("25", "--limit", "3")).toEqual((await history("25")).slice(0, 1 + 3));
    expect(await history("25", "--limit", "1000")).toHaveLength(1 + 26);
  });

  test("the history of an entry without kept changes says so, and that of none is an error", async () => {
    const { db, close } = openStock(url());
    await db("stock_ledger").where("pet_id", 24).delete();
    await close();
    expect(await history("24")).toEqual(["no changes of the entry are kept"]);
    const unknown = await run("4711");
    expect(unknown).toMatchObject({ code: 1, stdout: "", stderr: expect.stringContaining("petId 4711") });
  });
});

test("npm run stock -- history refuses what is no petId and no limit, with exit code 64", async () => {
  for (const args of [[], ["x"], ["1.5"], ["9223372036854775808"], ["1", "2"], ["1", "--limit", "0"]]) {
    expect(await runScript({ script, args: ["history", ...args] })).toMatchObject({ code: 64, stdout: "" });
  }
});

test("npm run stock -- history needs no right but to read (MySQL/MariaDB)", async () => {
  await using stack = new AsyncDisposableStack();
  const url = new URL(await createMysqlDatabase());
  stack.defer(() => dropDatabase(url.href));
  const { store } = await openMigratedStock(stack, url.href);
  await store.write([create(1n)]);
  const owner = await connectMysql(url.href);
  const user = `reader_${process.pid}`;
  await owner.query(`CREATE USER ${user}@'%' IDENTIFIED BY 'reader-password'`);
  await owner.query(`GRANT SELECT ON ${url.pathname.slice(1)}.* TO ${user}@'%'`);
  stack.defer(async () => {
    await owner.query(`DROP USER ${user}@'%'`);
    await owner.end();
  });
  const env = {
    INVENTORY_DATABASE_URL: Object.assign(new URL(url), { username: user, password: "reader-password" }).href,
  };
  expect(await runScript({ script, args: ["history", "1"], env })).toMatchObject({ code: 0, stderr: "" });
});
