// Starts the servers and the variants that are measured.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { generated } from "../../inventory-svc/cli/entries.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { type DatabaseServer, startPrivateDatabaseServer } from "../support/database-server.ts";
import { type RunningProcess, startProcess } from "../support/processes.ts";
import { startRedisServer } from "../support/redis-server.ts";
import { temporaryFolder } from "../support/stack.ts";
import { type Env, type System, startSystem } from "../support/system.ts";

/** A server of GET /v1/inventory, and the processes whose CPU time its answers take. */
export interface Variant {
  readonly address: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly processes: Readonly<Record<string, number>>;
}

export interface BenchServers {
  readonly database: DatabaseServer;
  readonly redisUrl: string;
  readonly redisPid: number;
}

/** Starts the servers that all variants use: a database that writes every commit to its disk, and Redis. */
export async function startServers(stack: AsyncDisposableStack): Promise<BenchServers> {
  const database = await startPrivateDatabaseServer();
  stack.defer(() => database.stop());
  process.env.TEST_MYSQL_SERVER_URL = database.url("");
  const redis = await startRedisServer();
  stack.defer(() => redis.stop());
  return { database, redisUrl: redis.url, redisPid: redis.pid! };
}

/** Starts this system with keys and limits, and with the petIds 1 to `size`. */
export async function startOurs(
  stack: AsyncDisposableStack,
  { database, redisUrl, redisPid }: BenchServers,
  size: number,
  inventoryEnv: Env = {},
): Promise<Variant & { readonly system: System }> {
  const system = await startSystem({
    database: "mysql",
    seed: await Array.fromAsync(generated(size)),
    seedHistory: false,
    // NODE_OPTIONS as in npm run gateway. The one account may hold half of the places for requests that wait.
    gatewayEnv: {
      REDIS_URL: redisUrl,
      LOG_LEVEL: "warn",
      NODE_OPTIONS: "--max-semi-space-size=32",
      MAX_HELD_REQUESTS: "20000",
      KEYED_UPDATES_PER_DAY: "1000000000",
    },
    inventoryEnv: { LOG_LEVEL: "warn", ...inventoryEnv },
  });
  stack.defer(() => system.close());
  return {
    system,
    address: system.address,
    headers: { Authorization: `Bearer ${system.keys.enterprise}` },
    processes: {
      gateway: system.gateways[0]!.pid,
      service: system.inventory.pid,
      database: database.pid!,
      redis: redisPid,
    },
  };
}

/** Starts the plain gateway and service on a table of the same entries. */
export async function startPlain(
  stack: AsyncDisposableStack,
  { database }: BenchServers,
  size: number,
): Promise<Variant & { readonly service: string }> {
  const url = await database.createDatabase();
  stack.defer(() => database.dropDatabase(url));
  const db = openDatabase(url);
  await db.schema.createTable("plain_stock", (table) => {
    table.bigInteger("pet_id").primary();
    table.integer("quantity").notNullable();
    table.string("status", 16).notNullable();
  });
  const entries = await Array.fromAsync(generated(size));
  for (let i = 0; i < entries.length; i += 1_000) {
    const rows = entries.slice(i, i + 1_000).map((e) => ({ pet_id: e.petId, quantity: e.quantity, status: e.status }));
    await db("plain_stock").insert(rows);
  }
  await db.destroy();
  const service = await start(stack, "plain-service", { DATABASE_URL: url });
  const gateway = await start(stack, "plain-gateway", { INVENTORY_ADDRESS: service.listen, NODE_ENV: "production" });
  return {
    address: gateway.listen,
    service: service.listen,
    headers: {},
    processes: { gateway: gateway.pid, service: service.pid, database: database.pid! },
  };
}

/** Starts an Express app that writes these bytes. */
export async function startConstant(stack: AsyncDisposableStack, body: Buffer): Promise<Variant> {
  const folder = await temporaryFolder("bench");
  stack.defer(() => folder.remove());
  const file = join(folder.path, "body");
  await writeFile(file, body);
  const constant = await start(stack, "constant-answer", { BODY_FILE: file, NODE_ENV: "production" });
  return { address: constant.listen, headers: {}, processes: { gateway: constant.pid } };
}

async function start(stack: AsyncDisposableStack, name: string, env: Record<string, string>): Promise<RunningProcess> {
  const process = await startProcess({ name, script: `test/bench/plain/${name}.ts`, env });
  stack.defer(async () => void (await process.stop()));
  return process;
}
