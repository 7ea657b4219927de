import { startPrivateDatabaseServer } from "../support/database-server.ts";
import { request } from "../support/http.ts";
import { connectMysql } from "../support/mysql-client.ts";
import type { RunningProcess } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

const risks = [
  "innodb_flush_log_at_trx_commit is 2, so a crash of the server's machine can lose updates: set it to 1",
  "log_bin is OFF, so readers may see an update that a crash takes back: set log_bin and sync_binlog=1",
  "the table old has no transactions (MyISAM), so updates can be lost or done by half: ALTER TABLE old ENGINE = InnoDB",
];
const ofStock =
  "the table stock_ledger takes texts for equal that are not (utf8mb4_general_ci), so a request can be taken for another one: ALTER TABLE stock_ledger CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

describe("database risks", () => {
  const stack = suiteStack();
  let system: System;
  let gateway: RunningProcess;

  beforeAll(async () => {
    const server = await startPrivateDatabaseServer("--skip-log-bin");
    stack.defer(() => server.stop());
    const operator = await connectMysql(server.url(""));
    stack.defer(() => operator.end());
    await operator.query("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    const shared = process.env.TEST_MYSQL_SERVER_URL;
    process.env.TEST_MYSQL_SERVER_URL = server.url("");
    system = await startSystem({ database: "mysql", gateways: 0 });
    for (const url of Object.values(system.databaseUrls)) {
      const { pathname } = new URL(url);
      await operator.query(`CREATE TABLE ${pathname.slice(1)}.old (id INT) ENGINE = MyISAM`);
    }
    const stock = new URL(system.databaseUrls.inventory).pathname.slice(1);
    await operator.query(
      `ALTER TABLE ${stock}.stock_ledger CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci`,
    );
    await system.restartInventory();
    gateway = await system.startGateway();
    process.env.TEST_MYSQL_SERVER_URL = shared;
    stack.defer(() => system.close());
  });

  test.each<[string, string, readonly string[], () => RunningProcess]>([
    ["inventory-svc", "inventory_database_risks", [...risks, ofStock], () => system.inventory],
    ["gateway", "gateway_database_risks", risks, () => gateway],
  ])(
    "a server that can lose updates is named by the %s in its log, on /readyz and in a metric",
    async (_tier, metric, expected, process) => {
      const { admin, output } = process();
      await until(() => output().split("NOT SAFE").length > expected.length);
      const lines = output()
        .split("\n")
        .filter((line) => line.includes("NOT SAFE"));
      // Each risk once.
      expect(lines.map((line) => JSON.parse(line))).toMatchObject(expected.map((risk) => ({ level: "warn", risk })));
      expect(await request(admin, { path: "/readyz" })).toMatchObject({
        status: 200,
        text: `ok\n${expected.join("\n")}\n`,
      });
      expect((await request(admin, { path: "/metrics" })).text).toMatch(
        new RegExp(`^${metric} ${expected.length}$`, "m"),
      );
    },
  );
});
