import { setTimeout as delay } from "node:timers/promises";
import type { Change } from "../../inventory-svc/stock/change.ts";
import { type DatabaseServer, startPrivateDatabaseServer } from "../support/database-server.ts";
import { type Inventory, statusOf } from "../support/grpc.ts";
import { callerOf, startInventoryService } from "../support/inventory-service.ts";
import { type Link, startLink } from "../support/link.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { migrateStock, openStock } from "../support/open-stock.ts";
import { cleanup, type RunningProcess, startScript } from "../support/processes.ts";
import { suiteStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

/** Each piece between the frozen writer and the database takes this long, so that the lock is held between packets. */
const pieceMs = 150;
const freezeMs = 18_000;
const ours = 1_000_000n;
const quiet = { LOG_LEVEL: "fatal" };

describe("a writer that is frozen while it holds the lock of the stock", () => {
  const stack = suiteStack();
  stack.defer(cleanup);
  let database: DatabaseServer;
  let url: string;
  let detour: URL;
  let link: Link;
  let healthy: Inventory;

  beforeAll(async () => {
    database = await startPrivateDatabaseServer();
    stack.defer(() => database.stop());
    url = await database.createDatabase();
    await migrateStock(url);
    const stock = openStock(url);
    const pets = [1n, ours].map((petId): Change => ({ kind: "create", petId, quantity: 0, status: "available" }));
    await stock.store.write(pets);
    await stock.close();
    link = await startLink(stack, database.port);
    detour = new URL(url);
    detour.port = String(link.port);
    healthy = callerOf(stack, await startInventoryService(stack, url, quiet));
  });

  async function holdsLock(): Promise<boolean> {
    const connection = await connectMysql(url);
    try {
      await connection.query("SELECT id FROM stock_head FOR UPDATE NOWAIT");
      return false;
    } catch {
      return true;
    } finally {
      await connection.end();
    }
  }

  /** Freezes a writer, until it has been hit while it holds the lock. */
  async function freeze(writer: Pick<RunningProcess, "kill">): Promise<void> {
    for (let attempt = 0; attempt < 20; attempt++) {
      await until(holdsLock, { withinMs: 60_000 });
      await writer.kill("SIGSTOP");
      await delay(4 * pieceMs); // what it has sent arrives
      if (await holdsLock()) return;
      await writer.kill("SIGCONT");
    }
    throw new Error("the writer was never hit while it held the lock");
  }

  test.each([
    [
      "a service",
      async () => {
        link.delayMs = 0;
        const service = await startInventoryService(stack, detour.href, quiet);
        const frozen = callerOf(stack, service);
        await frozen.update({ petId: 1n, quantity: 1 });
        link.delayMs = pieceMs;
        void (async () => {
          for (let quantity = 2; ; quantity++) await frozen.update({ petId: 1n, quantity });
        })().catch(() => {}); // its process is killed in the end
        return service;
      },
    ],
    [
      "npm run stock -- import",
      async () => {
        link.delayMs = pieceMs;
        const args = ["import", "--generate", "200000"];
        const env = { INVENTORY_DATABASE_URL: detour.href };
        return await startScript({ name: "import", script: "inventory-svc/cli/stock.ts", args, env });
      },
    ],
  ])("%s that is frozen while it holds the lock stops the updates of others for seconds only", async (_what, start) => {
    const writer = await start();
    await freeze(writer);
    const updated = async () => (await statusOf(healthy.update({ petId: ours, quantity: 7 }))) === "OK";
    await until(updated, { withinMs: freezeMs });
    await writer.kill("SIGKILL");
  });
});
