#!/usr/bin/env node
// npm run migrate: brings the schemas of both tiers up to date; `-- --down` takes the last step of each back.
import { keyMigrations } from "../gateway/auth/migrations.ts";
import { keySettings } from "../gateway/auth/settings.ts";
import { inventorySettings } from "../inventory-svc/config.ts";
import { stockMigrations } from "../inventory-svc/db/migrations.ts";
import { databaseDefaults, openDatabase } from "../runtime/database.ts";
import { type Migration, migrate } from "../runtime/migrations.ts";
import { exitWith, loadEnvFile } from "../runtime/process.ts";
import { describeSettings, readSettings } from "../runtime/settings.ts";

const settings = {
  GATEWAY_DATABASE_URL: keySettings.GATEWAY_DATABASE_URL,
  INVENTORY_DATABASE_URL: inventorySettings.INVENTORY_DATABASE_URL,
};

const help = `npm run migrate [-- --down] [--only gateway|inventory]

Brings the schemas of both tiers up to date, or takes the last step back. Safe to run from several machines at once.

Settings, from the environment or a .env file:
${describeSettings(settings)}`;

async function run(tier: string, url: string, migrations: readonly Migration[], direction: "up" | "down") {
  // A statement that changes a large table is silent for long.
  const db = openDatabase(url, { ...databaseDefaults, silenceTimeoutMs: 60 * 60_000 });
  try {
    const steps = await migrate(db, tier, migrations, direction);
    console.log(`${tier}: ${steps.length === 0 ? "nothing to do" : `${direction} ${steps.join(", ")}`}`);
  } finally {
    await db.destroy();
  }
}

try {
  const args = process.argv.slice(2);
  if (args.includes("--help") || args.includes("-h")) {
    console.log(help);
  } else {
    loadEnvFile();
    const urls = readSettings(settings, process.env);
    const direction = args.includes("--down") ? "down" : "up";
    const only = args.includes("--only") ? args[args.indexOf("--only") + 1] : undefined;
    if (only !== "inventory") await run("gateway", urls.GATEWAY_DATABASE_URL, keyMigrations, direction);
    if (only !== "gateway") await run("inventory", urls.INVENTORY_DATABASE_URL, stockMigrations, direction);
  }
} catch (error) {
  exitWith(error);
}
