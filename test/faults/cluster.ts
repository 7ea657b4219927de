import { type DatabaseServer, startPrivateDatabaseServer } from "../support/database-server.ts";
import { withDatabase } from "../support/mysql-client.ts";
import { freePort } from "../support/ports.ts";
import { firstService, type Restartable, startRestartable } from "../support/restartable.ts";
import { type System, startSystem } from "../support/system.ts";

/** Two inventory services and some gateways. */
export interface Tiers {
  readonly system: System;
  readonly services: readonly Restartable[];
  readonly gateways: readonly Restartable[];
}

/** Both tiers on a database server of their own. */
export interface Cluster extends Tiers {
  readonly database: DatabaseServer;
}

export interface ClusterOptions {
  readonly gateways: number;
  readonly pets: number;
  /** A script in place of the gateway's own, such as one that is broken on purpose. */
  readonly gatewayScript?: string;
  /** The same for the services. */
  readonly serviceScript?: string;
}

export async function startCluster(stack: AsyncDisposableStack, options: ClusterOptions): Promise<Cluster> {
  const database = await startPrivateDatabaseServer();
  stack.defer(() => database.stop());
  return { database, ...(await startTiers(stack, [database.url(""), database.url("")], options)) };
}

/** @param serverUrls `mysql://user:password@host:port/` for each of the two services; the gateways use the first */
export async function startTiers(
  stack: AsyncDisposableStack,
  serverUrls: readonly [string, string],
  options: ClusterOptions,
): Promise<Tiers> {
  const { gatewayScript = "gateway/main.ts", serviceScript = "inventory-svc/main.ts" } = options;
  process.env.TEST_MYSQL_SERVER_URL = serverUrls[0];
  const ports = [await freePort(), await freePort()];
  const inventoryEnv = { LOG_LEVEL: "fatal" };
  const system = await startSystem({
    database: "mysql",
    gateways: 0,
    seed: Array.from({ length: options.pets }, (_, i) => ({ petId: BigInt(i + 1), quantity: 0, status: "available" })),
    inventoryScript: serviceScript,
    inventoryEnv: { ...inventoryEnv, INVENTORY_LISTEN: `127.0.0.1:${ports[0]}` },
    gatewayEnv: {
      LOG_LEVEL: "fatal",
      INVENTORY_ADDRESS: `ipv4:${ports.map((port) => `127.0.0.1:${port}`).join(",")}`,
    },
  });
  stack.defer(() => system.close());

  const serviceEnv = (port: number) => ({
    ...inventoryEnv,
    INVENTORY_LISTEN: `127.0.0.1:${port}`,
    INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
    INVENTORY_DATABASE_URL: withDatabase(serverUrls[1], new URL(system.databaseUrls.inventory).pathname.slice(1)),
  });
  const second = { name: "inventory-svc", script: serviceScript, env: serviceEnv(ports[1]!) };
  const services = [firstService(system), await startRestartable(stack, second)];
  const gateways: Restartable[] = [];
  for (let i = 0; i < options.gateways; i++) {
    const env = { ...system.gatewayEnv, GATEWAY_LISTEN: `127.0.0.1:${await freePort()}` };
    gateways.push(await startRestartable(stack, { name: "gateway", script: gatewayScript, env }));
  }
  return { system, services, gateways };
}
