/**
 * Runs the whole system on one machine with nothing else installed (npm start).
 *
 * Each tier is a process with a SQLite file in .data/. Limits are in memory, a stand-in replaces the pets and orders
 * services, the stock is seeded, and each plan has a key. The environment and a .env file have the other settings.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { isIP } from "node:net";
import { join } from "node:path";
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, isWellFormed, ownKeyHasher, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { createKeyStore } from "../../gateway/accounts/keys/key-store.ts";
import { defaultKeyDatabaseUrl, ensurePepper } from "../../gateway/accounts/keys/pepper.ts";
import { hasOwnLimits, type PlanName, planNames } from "../../gateway/accounts/keys/plans.ts";
import { scopes } from "../../gateway/accounts/keys/principal.ts";
import { gatewaySettings, keySettings, readGatewayConfig } from "../../gateway/config.ts";
import { readLines } from "../../inventory-svc/cli/entries.ts";
import { inventorySettings, readInventoryConfig } from "../../inventory-svc/config.ts";
import type { Change } from "../../inventory-svc/stock/change.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { createCommand, runCommand } from "../../runtime/command-line.ts";
import { blamingDatabase } from "../../runtime/database/faults.ts";
import { migrateDatabase } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import { OperatorError } from "../../runtime/operator-error.ts";
import { forceAfterMs } from "../../runtime/process.ts";
import { SettingsError } from "../../runtime/settings.ts";
import { startStandIn } from "./stand-in.ts";
import { endAtOnce, startTier, stopTier, type Tier } from "./tiers.ts";

const dataDir = ".data";
const keysFile = `${dataDir}/keys.json`;
const seedFile = join(import.meta.dirname, "seed.csv");
const wildcards = new Set(["0.0.0.0", "::"]);
const anyPort = { host: "127.0.0.1", port: 0 };

/** The tiers in the order of their start, each with the Node flags of its npm script. */
const tierScripts = [["inventory-svc/main.ts"], ["gateway/main.ts", "--max-semi-space-size=32"]] as const;

type DemoKeys = Record<PlanName, string>;

/**
 * The settings that this script sets itself: those of the environment or `.env` may lead to the data of real services.
 */
const ownSettings = ["INVENTORY_DATABASE_URL", ...Object.keys(keySettings)];

const obeyed = Object.entries({ ...inventorySettings, ...gatewaySettings }).filter(([name]) => !isOwn(name));
const description = `Runs the whole system on this machine: SQLite in ${dataDir}/, limits in memory, a key for each plan.`;
await runCommand(createCommand("start", description, Object.fromEntries(obeyed)).action(main));

function isOwn(name: string): boolean {
  return ownSettings.includes(name);
}

async function main(): Promise<void> {
  mkdirSync(dataDir, { recursive: true });
  // An empty value counts as not set, here as in the tiers.
  const given = Object.entries(process.env).filter(([, value]) => value !== "");
  const ignored = given.map(([name]) => name).filter(isOwn);
  const pepper = ensurePepper(dataDir);
  const env: NodeJS.ProcessEnv = {
    LOG_LEVEL: "warn",
    DRAIN_DELAY_SECONDS: "0",
    KEY_ROTATION: "1",
    ...Object.fromEntries(given),
    // Set even where they are the defaults: the tiers take from .env what is missing, but not what is empty.
    ...Object.fromEntries(ownSettings.map((name) => [name, ""])),
    INVENTORY_DATABASE_URL: `sqlite:${dataDir}/inventory.sqlite`,
    GATEWAY_DATABASE_URL: defaultKeyDatabaseUrl,
    KEY_PEPPER: pepper,
  };
  const { inventory, gateway } = readBothConfigs(env);
  const standIn = env.PETS_UPSTREAM_URL && env.ORDERS_UPSTREAM_URL ? undefined : await startStandIn(anyPort);
  if (standIn) {
    env.PETS_UPSTREAM_URL ??= `http://${standIn.address}`;
    env.ORDERS_UPSTREAM_URL ??= `http://${standIn.address}`;
  }

  // Readers of the OpenAPI document may have a copy of it, where a relative address leads nowhere. With port 0 or a
  // wildcard the address is not known here.
  const { host, port } = gateway.GATEWAY_LISTEN;
  if (port !== 0 && isIP(host) && !wildcards.has(host)) env.GATEWAY_SERVERS ??= `http://${gateway.GATEWAY_LISTEN}/v1`;

  await blamingDatabase("the stock (inventory-svc)", () => prepareStock(inventory.INVENTORY_DATABASE_URL));
  const keys = await blamingDatabase("the keys (gateway)", () =>
    prepareKeys(gateway.GATEWAY_DATABASE_URL, pepper, gateway.GATEWAY_KEY_ENV),
  );

  const tiers: Tier[] = [];
  let stopping = false;
  let interruptedMs: number | undefined;
  const stop = async (code: number): Promise<void> => {
    if (stopping) return;
    stopping = true;
    for (const tier of tiers.toReversed()) await stopTier(tier);
    await standIn?.close();
    process.exit(code);
  };
  process.on("SIGINT", () => {
    const nowMs = performance.now();
    // npm passes Ctrl-C on, so the first one comes twice.
    if (interruptedMs !== undefined && nowMs - interruptedMs >= forceAfterMs) return endAtOnce(tiers);
    if (interruptedMs === undefined) {
      interruptedMs = nowMs;
      console.error("Stopping, once the requests under way have their answers. Ctrl-C again ends at once.");
    }
    void stop(0);
  });
  process.on("SIGTERM", () => void stop(0));

  try {
    for (const [script, ...flags] of tierScripts) {
      const address = tiers.at(-1)?.listen;
      const tier = await startTier(script, flags, address ? { ...env, INVENTORY_ADDRESS: address } : env);
      tiers.push(tier);
      void tier.exited.then((how) => {
        if (!stopping) console.error(`${script} ${how}: stopping`);
        return stop(1);
      });
    }
  } catch (error) {
    console.error((error as Error).message);
    return await stop(1);
  }
  if (!stopping) announce(tiers.at(-1)!.listen, keys, ignored);
}

/** Reads the settings of both tiers. @throws SettingsError that names all their faults at once */
function readBothConfigs(env: NodeJS.ProcessEnv) {
  const faults: string[] = [];
  const read = <T>(config: (env: NodeJS.ProcessEnv) => T): T | undefined => {
    try {
      return config(env);
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      faults.push(...error.faults);
      return undefined;
    }
  };
  const [inventory, gateway] = [read(readInventoryConfig), read(readGatewayConfig)];
  if (!inventory || !gateway) throw new SettingsError([...new Set(faults)]); // both tiers report LOG_LEVEL
  return { inventory, gateway };
}

/** Brings the stock's schema up to date, and seeds a store that has never had an entry. */
async function prepareStock(url: string): Promise<void> {
  await migrateDatabase(url, "inventory", stockMigrations);
  const db = openDatabase(url);
  try {
    const store = new StockStore(db);
    const { revision } = await store.position();
    if (revision > 0n) return;
    const changes: Change[] = [];
    for await (const line of readLines(seedFile, "csv"))
      if ("entry" in line) changes.push({ kind: "put", ...line.entry });
    await store.write(changes);
  } finally {
    await db.destroy();
  }
}

/**
 * Returns one key for each plan, with all scopes. The database has only their hashes, so a file keeps the keys for the
 * next start. A kept key that works no more, because it was rotated or made under another pepper, is replaced.
 */
async function prepareKeys(url: string, pepper: string, env: string): Promise<DemoKeys> {
  await migrateDatabase(url, "gateway", gatewayMigrations);
  const db = openDatabase(url);
  try {
    const kept = readKeys();
    const store = createKeyStore(db);
    const admin = createKeyAdmin(db, Date.now);
    const keys: Partial<DemoKeys> = {};
    for (const plan of planNames) {
      const keyHash = kept && ownKeyHasher([pepper])(kept[plan]);
      if (keyHash && (await store.findByHash(keyHash))) {
        keys[plan] = kept[plan];
        continue;
      }
      const key = createKey(env, pepper);
      const limits = hasOwnLimits(plan) ? { perMinute: 100_000, perDay: 10_000_000 } : null;
      await admin.issue({ account: `demo-${plan}`, plan, limits, scopes, ...storedKey(key, pepper) });
      keys[plan] = key;
    }
    writeFileSync(keysFile, `${JSON.stringify(keys, null, 2)}\n`, { mode: 0o600 });
    return keys as DemoKeys;
  } finally {
    await db.destroy();
  }
}

/** @throws OperatorError when the file is there but does not hold a key for each plan */
function readKeys(): DemoKeys | undefined {
  if (!existsSync(keysFile)) return undefined;
  const text = readFileSync(keysFile, "utf8");
  const keys = parseKeys(text);
  if (keys) return keys;
  throw new OperatorError(`${keysFile}: does not hold a key for each plan; remove it, and npm start makes new ones`);
}

function parseKeys(text: string): DemoKeys | undefined {
  try {
    const keys = JSON.parse(text) as DemoKeys;
    return planNames.every((plan) => isWellFormed(keys[plan])) ? keys : undefined;
  } catch {
    return undefined;
  }
}

function announce(address: string, keys: DemoKeys, ignored: readonly string[]): void {
  const base = `http://${address}/v1`;
  const rows = planNames.map((plan) => `  ${plan.padEnd(11)} ${keys[plan]}`).join("\n");
  const notUsed = ignored.length > 0 ? `\n  Not used       ${ignored.join(", ")}: npm start has its own` : "";
  console.log(`
The petstore inventory API is ready.

  Base address   ${base}
  Documentation  http://${address}/docs
  Your account   http://${address}/account
  Data           SQLite in ${dataDir}/, limits in memory${notUsed}

API keys, one per plan (kept in ${keysFile}):
${rows}

Read the stock, then set the quantity of one pet:

curl -s -H "Authorization: Bearer ${keys.pro}" ${base}/inventory
curl -s -X PATCH -H "Authorization: Bearer ${keys.pro}" -H "Content-Type: application/json" -d '{"quantity": 12}' ${base}/inventory/1001

Ctrl-C stops everything.`);
}
