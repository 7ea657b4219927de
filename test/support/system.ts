import { ChannelCredentials, type ServiceError, status } from "@grpc/grpc-js";
import { startStandIn } from "../../deploy/local/stand-in.ts";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin, type IssuedKey } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { type AccountLimits, hasOwnLimits, type PlanName, planNames } from "../../gateway/accounts/keys/plans.ts";
import type { Scope } from "../../gateway/accounts/keys/principal.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { InventoryServiceClient } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { ItemInput } from "../../proto/pet.ts";
import { petStatuses } from "../../proto/pet.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { isEarly } from "./accounts.ts";
import { createMysqlDatabase, createSqliteDatabase, dropDatabase } from "./databases.ts";
import { testPepper } from "./made-keys.ts";
import { type RunningProcess, runScript, type ScriptResult, startProcess } from "./processes.ts";

export type Env = Readonly<Record<string, string>>;

export interface SystemOptions {
  /** Default: SQLite files, one for each tier; with `TEST_SYSTEMS=mysql` the server that all suites share. */
  readonly database?: "sqlite" | "mysql";
  /** Empty databases in place of new ones. */
  readonly databaseUrls?: System["databaseUrls"];
  /** Entries that the stock has at first. */
  readonly seed?: readonly ItemInput[];
  /** Whether the history has an import for each of them; default true. Without it, they are there in half the time. */
  readonly seedHistory?: boolean;
  /** Number of gateways; default 1. A suite that starts them later sets 0. */
  readonly gateways?: number;
  /** Settings after those that connect the parts, which they may replace. An empty text removes a setting. */
  readonly gatewayEnv?: Env;
  readonly inventoryEnv?: Env;
  /** The script of inventory-svc; default: its own. */
  readonly inventoryScript?: string;
  /** Credentials of `client`; default: none, for a service without TLS. */
  readonly clientCredentials?: ChannelCredentials;
}

export interface KeyOptions {
  /** Default: a new account of its own, which is early in its windows. */
  readonly account?: string;
  /** Plan of a new account; default free. */
  readonly plan?: PlanName;
  /** Limits of an enterprise account; default: practically none. */
  readonly limits?: AccountLimits;
  readonly scopes?: readonly Scope[];
  /** Unix milliseconds. */
  readonly expiresAtMs?: number;
}

export interface TestKey extends IssuedKey {
  readonly key: string;
}

/** The whole system as processes, on databases of its own. */
export interface System {
  /** Public address of the first gateway, `host:port`. */
  readonly address: string;
  readonly adminAddress: string;
  /** A key for each plan, each of an account of its own. The enterprise key has practically no limits. */
  readonly keys: Readonly<Record<PlanName, string>>;
  /** The inventory service that was started last. */
  readonly inventory: RunningProcess;
  readonly gateways: readonly RunningProcess[];
  /** The inventory service as internal callers see it. */
  readonly client: InventoryServiceClient;
  /** Settings that the gateways were started with. */
  readonly gatewayEnv: Env;
  readonly databaseUrls: { readonly gateway: string; readonly inventory: string };
  issueKey(options?: KeyOptions): Promise<TestKey>;
  /** Runs `npm run keys -- …` on the system's keys. */
  runKeys(...args: string[]): Promise<ScriptResult>;
  /** Reads an entry as it is stored; undefined when there is none. */
  stored(petId: bigint): Promise<ItemInput | undefined>;
  /** Starts one more gateway, with the settings of the others and these. It is stopped with the system. */
  startGateway(env?: Env): Promise<RunningProcess>;
  /** Starts inventory-svc again on the same address and data, after a regular stop where it still runs. */
  restartInventory(): Promise<RunningProcess>;
  /** Stops everything in the reverse order of its start. Every step runs, even after one that failed. */
  close(): Promise<void>;
}

const keyEnv = "test";
const usualDatabase = process.env.TEST_SYSTEMS === "mysql" ? "mysql" : "sqlite";
const practicallyNoLimits: AccountLimits = { perMinute: 1_000_000_000, perDay: 2_000_000_000 };
const anyPort = "127.0.0.1:0";

/**
 * Starts inventory-svc, the gateways and a stand-in for the services that own pets and orders, on new databases.
 * A suite closes it with `stack.defer(() => system.close())`. A failed start leaves no process and no database.
 */
export async function startSystem(options: SystemOptions = {}): Promise<System> {
  const {
    database = usualDatabase,
    seed = [],
    seedHistory = true,
    gateways: count = 1,
    inventoryScript = "inventory-svc/main.ts",
  } = options;
  await using starting = new AsyncDisposableStack();

  const databaseUrls = options.databaseUrls ?? {
    gateway: await newDatabase(starting, database),
    inventory: await newDatabase(starting, database),
  };
  await fillStock(databaseUrls.inventory, seed, seedHistory);
  const issueKey = await openKeys(starting, databaseUrls.gateway);
  await migrateToLater(databaseUrls);
  const standIn = await startStandIn({ host: "127.0.0.1", port: 0 });
  starting.defer(() => standIn.close());

  const inventoryEnv: Env = {
    INVENTORY_LISTEN: anyPort,
    INVENTORY_ADMIN_LISTEN: anyPort,
    INVENTORY_DATABASE_URL: databaseUrls.inventory,
    ...options.inventoryEnv,
  };
  const startInventory = (env: Env) => startProcess({ name: "inventory-svc", script: inventoryScript, env });
  let inventory = await startInventory(inventoryEnv);
  starting.defer(async () => void (await inventory.stop()));
  const { clientCredentials = ChannelCredentials.createInsecure() } = options;
  const client = new InventoryServiceClient(inventory.listen, clientCredentials);
  starting.defer(() => client.close());

  const gatewayEnv: Env = {
    GATEWAY_LISTEN: anyPort,
    GATEWAY_ADMIN_LISTEN: anyPort,
    GATEWAY_DATABASE_URL: databaseUrls.gateway,
    GATEWAY_KEY_ENV: keyEnv,
    KEY_PEPPER: testPepper,
    INVENTORY_ADDRESS: inventory.listen,
    PETS_UPSTREAM_URL: `http://${standIn.address}`,
    ORDERS_UPSTREAM_URL: `http://${standIn.address}`,
    ...options.gatewayEnv,
  };
  const gateways: RunningProcess[] = [];
  for (let i = 0; i < count; i++) gateways.push(await startGateway(starting, gatewayEnv));

  const keys = {} as Record<PlanName, string>;
  for (const plan of planNames) keys[plan] = (await issueKey({ plan })).key;
  const opened = starting.move();
  return {
    address: gateways[0]?.listen ?? "",
    adminAddress: gateways[0]?.admin ?? "",
    keys,
    get inventory() {
      return inventory;
    },
    gateways,
    client,
    gatewayEnv,
    databaseUrls,
    issueKey,
    runKeys: (...args) => runScript({ script: "gateway/accounts/cli/keys.ts", args, env: gatewayEnv }),
    stored: (petId) => readEntry(client, petId),
    startGateway: (env = {}) => startGateway(opened, { ...gatewayEnv, ...env }),
    restartInventory: async () => {
      await inventory.stop();
      inventory = await startInventory({ ...inventoryEnv, INVENTORY_LISTEN: inventory.listen });
      return inventory;
    },
    close: () => opened.disposeAsync(),
  };
}

async function newDatabase(stack: AsyncDisposableStack, kind: "sqlite" | "mysql"): Promise<string> {
  const url = await (kind === "sqlite" ? createSqliteDatabase() : createMysqlDatabase());
  stack.defer(() => dropDatabase(url));
  return url;
}

async function fillStock(url: string, seed: readonly ItemInput[], keepsHistory: boolean): Promise<void> {
  const db = openDatabase(url);
  try {
    await migrate(db, "inventory", stockMigrations, "up");
    const store = new StockStore(db, keepsHistory);
    for (let i = 0; i < seed.length; i += 1_000) {
      await store.write(seed.slice(i, i + 1_000).map((entry) => ({ kind: "put", ...entry })));
    }
  } finally {
    await db.destroy();
  }
}

/** Beside a later version (`test/versions`) the schemas are of that one, as in an upgrade. */
async function migrateToLater({ gateway, inventory }: System["databaseUrls"]): Promise<void> {
  if (process.env.LATER_VERSION === undefined) return;
  const env = { GATEWAY_DATABASE_URL: gateway, INVENTORY_DATABASE_URL: inventory };
  const { code, stderr } = await runScript({ script: "deploy/migrate.ts", env });
  if (code !== 0) throw new Error(stderr);
}

/** Opens the database of the keys. @returns a function that issues a key there */
async function openKeys(stack: AsyncDisposableStack, url: string): Promise<System["issueKey"]> {
  const db = openDatabase(url);
  stack.defer(() => db.destroy());
  await migrate(db, "gateway", gatewayMigrations, "up");
  const admin = createKeyAdmin(db, Date.now);
  let accounts = 0;
  return async function issueKey({ account, plan, limits, ...rest } = {}) {
    accounts += 1;
    const key = createKey(keyEnv, testPepper);
    const issued = await admin.issue({
      account: account ?? `account ${accounts}`,
      plan,
      limits: limits ?? (plan && hasOwnLimits(plan) ? practicallyNoLimits : undefined),
      ...storedKey(key, testPepper),
      ...rest,
    });
    if (account !== undefined || isEarly(issued.accountId)) return { ...issued, key };
    await db("api_keys").where("id", issued.keyId).delete();
    await db("accounts").where("id", issued.accountId).delete();
    return await issueKey({ plan, limits, ...rest });
  };
}

async function startGateway(stack: AsyncDisposableStack, env: Env): Promise<RunningProcess> {
  const gateway = await startProcess({ name: "gateway", script: "gateway/main.ts", env });
  stack.defer(async () => void (await gateway.stop()));
  return gateway;
}

function readEntry(client: InventoryServiceClient, petId: bigint): Promise<ItemInput | undefined> {
  return new Promise((resolve, reject) => {
    client.getInventoryItem({ petId }, (error: ServiceError | null, response) => {
      if (error?.code === status.NOT_FOUND) resolve(undefined);
      else if (error) reject(error);
      else {
        const { quantity, status: wireStatus } = response.item!;
        resolve({ petId, quantity, status: petStatuses[wireStatus - 1]! });
      }
    });
  });
}
