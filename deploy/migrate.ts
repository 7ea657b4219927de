#!/usr/bin/env node
// Brings the schemas of both tiers up to date (npm run migrate), or undoes the last step of each (--down).
import { Command, Option } from "commander";
import { keyMigrations } from "../gateway/accounts/migrations.ts";
import { keySettings } from "../gateway/config.ts";
import { inventorySettings } from "../inventory-svc/config.ts";
import { stockMigrations } from "../inventory-svc/stock/migrations.ts";
import { type Migration, migrate } from "../runtime/database/migrations.ts";
import { databaseDefaults, openDatabase } from "../runtime/database/open.ts";
import { exitWith, loadEnvFile } from "../runtime/process.ts";
import { describeSettings, readSettings } from "../runtime/settings.ts";

const settings = {
  GATEWAY_DATABASE_URL: keySettings.GATEWAY_DATABASE_URL,
  INVENTORY_DATABASE_URL: inventorySettings.INVENTORY_DATABASE_URL,
};

async function run(tier: string, url: string, migrations: readonly Migration[], direction: "up" | "down") {
  // A statement that changes a large table can run long without an answer.
  const db = openDatabase(url, { ...databaseDefaults, silenceTimeoutMs: 60 * 60_000 });
  try {
    const steps = await migrate(db, tier, migrations, direction);
    console.log(`${tier}: ${steps.length === 0 ? "nothing to do" : `${direction} ${steps.join(", ")}`}`);
  } finally {
    await db.destroy();
  }
}

const program = new Command("npm run migrate --")
  .description("Brings the schemas of both tiers up to date. Safe to run from several machines at once.")
  .option("--down", "undoes the last step of each instead")
  .addOption(new Option("--only <tier>", "migrates only this tier").choices(["gateway", "inventory"]))
  .addHelpText("after", `\nSettings, from the environment or a .env file:\n${describeSettings(settings)}`)
  .action(async ({ down, only }: { down?: true; only?: "gateway" | "inventory" }) => {
    const urls = readSettings(settings, process.env);
    const direction = down ? "down" : "up";
    if (only !== "inventory") await run("gateway", urls.GATEWAY_DATABASE_URL, keyMigrations, direction);
    if (only !== "gateway") await run("inventory", urls.INVENTORY_DATABASE_URL, stockMigrations, direction);
  });

try {
  loadEnvFile();
  await program.parseAsync();
} catch (error) {
  exitWith(error);
}
