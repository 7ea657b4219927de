import { request } from "../support/http.ts";
import { startScript } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";
import type { DatabaseCluster } from "./database-cluster.ts";
import { type ReadSplitter, startReadSplitter } from "./read-splitter.ts";
import { startSemiSynchronousPair } from "./semi-synchronous.ts";

describe("a proxy that sends reads to a replica", () => {
  const stack = suiteStack();
  let pair: DatabaseCluster;
  let splitter: ReadSplitter;
  let system: System;

  beforeAll(async () => {
    pair = await startSemiSynchronousPair(stack);
    const [source, replica] = pair.nodes;
    await source!.query("CREATE USER plain@'127.0.0.1'");
    await source!.query("GRANT ALL ON *.* TO plain@'127.0.0.1'");
    await pair.rejoin(replica!);
    const ports = [source!, replica!].map((node) => Number(new URL(node.url("")).port));
    splitter = await startReadSplitter(stack, { source: ports[0]!, replica: ports[1]! });
    process.env.TEST_MYSQL_SERVER_URL = `mysql://plain@127.0.0.1:${splitter.port}/`;
    const seed = [{ petId: 1n, quantity: 0, status: "available" } as const];
    system = await startSystem({ database: "mysql", seed });
    stack.defer(() => system.close());
  }, 120_000);

  const call = (method: "GET" | "PATCH", more: { path: string; body?: string }) => {
    const headers = { authorization: `Bearer ${system.keys.enterprise}`, "content-type": "application/json" };
    return request(system.address, { method, headers, ...more });
  };
  const list = () => call("GET", { path: "/v1/inventory" });
  const set = (quantity: number) => call("PATCH", { path: "/v1/inventory/1", body: JSON.stringify({ quantity }) });

  test.each([
    ["is read-only", 1, "ON"],
    ["takes writes", 2, "OFF"],
  ])(
    "that is behind and %s makes no read stale: reads are refused until it stops",
    async (_what, quantity, isReadOnly) => {
      const [, replica] = pair.nodes;
      await replica!.query(`SET GLOBAL super_read_only = ${isReadOnly}`);
      await replica!.query(`SET GLOBAL read_only = ${isReadOnly}`);
      expect(await list()).toMatchObject({ status: 200 });
      await replica!.query("STOP REPLICA SQL_THREAD");
      splitter.isSplitting = true;
      expect(await set(quantity)).toMatchObject({ status: 200 });
      const answers = await Promise.all(Array.from({ length: 20 }, list));
      // 504 where a question is under way at the deadline of a read.
      expect(answers.filter(({ status }) => status !== 503 && status !== 504)).toEqual([]);
      expect(await request(system.inventory.admin, { path: "/readyz" })).toMatchObject({ status: 503 });
      expect(system.inventory.output()).toContain("the URL has to lead to the primary without splitting reads");

      splitter.isSplitting = false;
      await until(async () => (await list()).status === 200);
      expect(JSON.parse((await list()).text)).toEqual([{ petId: 1, quantity, status: "available" }]);
      await replica!.query("START REPLICA SQL_THREAD");
      await pair.rejoin(replica!);
    },
  );

  test.each([
    ["inventory-svc", "inventory-svc/main.ts"],
    ["a gateway", "gateway/main.ts"],
  ])("that is behind keeps %s from becoming ready, which its log explains", async (name, script) => {
    splitter.isSplitting = true;
    const ports = { GATEWAY_LISTEN: "127.0.0.1:0", GATEWAY_ADMIN_LISTEN: "127.0.0.1:0" };
    const env = {
      ...system.gatewayEnv,
      ...ports,
      INVENTORY_LISTEN: "127.0.0.1:0",
      INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
      INVENTORY_DATABASE_URL: system.databaseUrls.inventory,
    };
    const process = await startScript({ name, script, env });
    stack.defer(() => process.kill("SIGKILL"));
    await process.waitForLine((line) => /without splitting reads.*not ready yet/.test(line) || undefined, 30_000);
    await process.kill("SIGKILL");
    splitter.isSplitting = false;
  });
});
