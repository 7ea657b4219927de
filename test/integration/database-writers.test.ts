// Connections of one pool that lead to two servers which both take writes, as a Service does that selects replicas.
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { ChannelCredentials } from "@grpc/grpc-js";
import { pino } from "pino";
import { createKey } from "../../gateway/accounts/keys/key-format.ts";
import { InventoryServiceClient } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import { acquireConnection, openConnections, releaseConnection } from "../../runtime/database/knex-internals.ts";
import { askAgain, openDatabase } from "../../runtime/database/open.ts";
import { DatabaseRisks, writersBehind, writersBehindAll } from "../../runtime/database/risks.ts";
import { serverProcess } from "../support/database-server.ts";
import { request } from "../support/http.ts";
import { testPepper } from "../support/made-keys.ts";
import { connectMysql, withDatabase } from "../support/mysql-client.ts";
import { prepareMysqld } from "../support/mysqld.ts";
import { freePort } from "../support/ports.ts";
import { cleanup, type RunningProcess, runScript, startProcess } from "../support/processes.ts";
import { suiteStack, temporaryFolder } from "../support/stack.ts";
import { until } from "../support/until.ts";

const risk =
  "connections lead to several database servers that all take writes (server_id 1, server_id 2), so updates can be lost and reads be old: the URL has to lead to the primary alone";

describe("two servers that take writes", () => {
  const stack = suiteStack();
  stack.defer(cleanup);
  const servers: { readonly port: number; readonly url: string }[] = [];
  /** The servers to which new connections go, in turn. */
  let targets: typeof servers = [];
  let spread: string;

  beforeAll(async () => {
    const folders = [await temporaryFolder("mysql"), await temporaryFolder("mysql")] as const;
    for (const folder of folders) stack.defer(() => folder.remove());
    const first = await prepareMysqld(folders[0].path, await freePort());
    const second = await first.copyTo(folders[1].path, await freePort());
    for (const [i, prepared] of [first, second].entries()) {
      const options = { name: `database ${i + 1}`, cwd: folders[i]!.path, env: process.env };
      const server = serverProcess(prepared, options);
      await server.start(`--server-id=${i + 1}`);
      stack.defer(() => server.stop());
      servers.push({ port: Number(new URL(prepared.url).port), url: prepared.url });
      const operator = await connectMysql(prepared.url);
      await operator.query("CREATE DATABASE petstore CHARACTER SET utf8mb4");
      await operator.end();
      await runScript({ script: "deploy/migrate.ts", env: databases(prepared.url) });
    }
    const proxy = createServer((caller) => {
      targets.push(targets.shift()!);
      const target = connect(targets[0]!.port, "127.0.0.1");
      caller.on("error", () => {}).on("close", () => target.destroy());
      target.on("error", () => {}).on("close", () => caller.destroy());
      caller.pipe(target).pipe(caller);
    }).listen(0, "127.0.0.1");
    await once(proxy, "listening");
    stack.defer(() => void proxy.close());
    spread = Object.assign(new URL(first.url), { port: (proxy.address() as AddressInfo).port }).href;
  });

  const databases = (serverUrl: string) => {
    const url = withDatabase(serverUrl, "petstore");
    return { GATEWAY_DATABASE_URL: url, INVENTORY_DATABASE_URL: url };
  };
  const anyPort = "127.0.0.1:0";
  const env = {
    INVENTORY_LISTEN: anyPort,
    INVENTORY_ADMIN_LISTEN: anyPort,
    GATEWAY_LISTEN: anyPort,
    GATEWAY_ADMIN_LISTEN: anyPort,
    GATEWAY_KEY_ENV: "test",
    KEY_PEPPER: testPepper,
    ADDRESS_GUARD_PER_MINUTE: "1000000",
  };

  test("make both tiers not ready, by name, until all connections lead to one", async () => {
    targets = [servers[0]!];
    const inventory = await startProcess({
      name: "inventory-svc",
      script: "inventory-svc/main.ts",
      env: { ...env, ...databases(spread) },
    });
    const gateway = await startProcess({
      name: "gateway",
      script: "gateway/main.ts",
      env: { ...env, ...databases(spread), INVENTORY_ADDRESS: inventory.listen },
    });
    const client = new InventoryServiceClient(inventory.listen, ChannelCredentials.createInsecure());
    stack.defer(() => client.close());
    const readEntries = () =>
      Promise.all(
        Array.from({ length: 8 }, (_, i) => new Promise((done) => client.getInventoryItem({ petId: BigInt(i) }, done))),
      );
    const lookUpKeys = () =>
      Promise.all(
        Array.from({ length: 8 }, () =>
          request(gateway.listen, {
            path: "/v1/inventory",
            headers: { authorization: `Bearer ${createKey("test", testPepper)}` },
          }),
        ),
      );
    const readyz = ({ admin }: RunningProcess) => request(admin, { path: "/readyz" });
    for (const [process, setting, use] of [
      [inventory, "INVENTORY_DATABASE_URL (inventory-svc)", readEntries],
      [gateway, "GATEWAY_DATABASE_URL (gateway)", lookUpKeys],
    ] as const) {
      targets = [...servers];
      await until(async () => {
        await use();
        return (await readyz(process)).status === 503;
      });
      expect((await readyz(process)).text).toBe(`${setting}: ${risk}\n`);
      const line = process
        .output()
        .split("\n")
        .find((each) => each.includes("NOT SAFE: connections lead to several database servers"));
      expect(JSON.parse(line ?? "{}")).toMatchObject({ level: "error", risk });
      targets = [servers[0]!];
      await until(async () => (await readyz(process)).status === 200);
    }
  });

  test("are told from a switch, after which the old one is read-only", async () => {
    targets = [...servers];
    const db = openDatabase(withDatabase(spread, "petstore"));
    stack.defer(() => db.destroy());
    const connections = await Promise.all(Array.from({ length: 4 }, () => acquireConnection(db)));
    expect((await writersBehind(db)).sort()).toEqual(["server_id 1", "server_id 2"]);
    for (const connection of connections) await releaseConnection(db, connection);
    expect((await writersBehind(db)).sort()).toEqual(["server_id 1", "server_id 2"]);
    const operator = await connectMysql(servers[0]!.url);
    await operator.query("SET GLOBAL read_only = 1");
    expect(await writersBehind(db)).toEqual(["server_id 2"]);
    await operator.query("SET GLOBAL read_only = 0");
    await operator.end();
    expect((await writersBehindAll(db, 4)).sort()).toEqual(["server_id 1", "server_id 2"]);
  });

  test("connections whose server was switched to another mode are given up", async () => {
    targets = [servers[0]!];
    const db = openDatabase(withDatabase(spread, "petstore"));
    stack.defer(() => db.destroy());
    const log = pino({ level: "silent" });
    const risks = new DatabaseRisks(log, "INVENTORY_DATABASE_URL (inventory-svc)");
    const connections = await Promise.all(Array.from({ length: 3 }, () => acquireConnection(db)));
    for (const connection of connections) await releaseConnection(db, connection);
    await risks.readAgain(db);
    expect(openConnections(db)).toHaveLength(3);
    const operator = await connectMysql(servers[0]!.url);
    await operator.query("SET GLOBAL server_id = 7");
    stack.defer(() => operator.query("SET GLOBAL server_id = 1").then(() => operator.end()));
    for (const each of connections as unknown as { promise(): { query(sql: string): Promise<unknown> } }[]) {
      await each
        .promise()
        .query("SET SESSION server_id = 7")
        .catch(() => {}); // MariaDB's sessions keep an id of their own
    }
    await askAgain(connections[0]!); // as a comparison of the servers does
    expect(openConnections(db)).toHaveLength(2);
    await risks.readAgain(db);
    expect(openConnections(db)).toHaveLength(0);
  });
});
