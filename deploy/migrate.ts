#!/usr/bin/env node
/** Brings the schemas of both tiers up to date (npm run migrate), or takes the last step of one back (--down). */
import "../runtime/node-version.ts";
import { Option } from "commander";
import { gatewayMigrations } from "../gateway/accounts/cli/account-migrations.ts";
import { keyDatabaseSetting, keySettings } from "../gateway/config.ts";
import { inventorySettings, stockDatabaseSetting } from "../inventory-svc/config.ts";
import { stockMigrations } from "../inventory-svc/stock/stock-migrations.ts";
import { counted, createCommand, exitUsage, runCommand } from "../runtime/command-line.ts";
import { blamingDatabase } from "../runtime/database/faults.ts";
import { LaterSchemaError, migrateDatabase, type StepBack } from "../runtime/database/migrations.ts";
import { OperatorError } from "../runtime/operator-error.ts";
import { readSettings } from "../runtime/settings.ts";

const settings = {
  GATEWAY_DATABASE_URL: keySettings.GATEWAY_DATABASE_URL,
  INVENTORY_DATABASE_URL: inventorySettings.INVENTORY_DATABASE_URL,
};

const schemas = {
  gateway: {
    url: "GATEWAY_DATABASE_URL",
    setting: keyDatabaseSetting,
    migrations: gatewayMigrations,
    service: "gateway",
  },
  inventory: {
    url: "INVENTORY_DATABASE_URL",
    setting: stockDatabaseSetting,
    migrations: stockMigrations,
    service: "inventory-svc",
  },
} as const;

type Tier = keyof typeof schemas;

interface Options {
  readonly down?: true;
  readonly only?: Tier;
  readonly dropData?: string;
}

const description = "Brings the schemas of both tiers up to date. Safe to run from several machines at once.";
const command = createCommand("migrate", description, settings)
  .addOption(new Option("--only <tier>", "migrates only this tier").choices(Object.keys(schemas)))
  .option("--down", "undoes the last step of the tier that --only names")
  .option("--drop-data <step>", "lets --down drop data, provided that <step> is the last step")
  .action(async ({ down, only, dropData }: Options) => {
    if (down && !only) return command.error("error: --down needs --only gateway or --only inventory", usage);
    if (dropData && !down) return command.error("error: --drop-data is for --down", usage);
    const urls = readSettings(settings, process.env);
    for (const tier of only ? [only] : (["gateway", "inventory"] as const)) {
      await run(tier, urls[schemas[tier].url], down ? "down" : "up", dropData);
    }
  });
const usage = { exitCode: exitUsage };
await runCommand(command);

async function run(tier: Tier, url: string, direction: "up" | "down", mayDrop: string | undefined): Promise<void> {
  const { setting, migrations } = schemas[tier];
  const steps = await blamingDatabase(setting, () =>
    migrateDatabase(url, tier, migrations, direction, (back) => confirmBack(tier, back, mayDrop)),
  ).catch((error: Error) => {
    // A deployment of the previous version may run this script when it starts. Its services and commands work on the
    // newer schema.
    if (direction === "down" || !(error.cause instanceof LaterSchemaError)) throw error;
    console.error(`${tier}: ${error.cause.message}`);
    return [];
  });
  console.log(`${tier}: ${steps.length === 0 ? "nothing to do" : `${direction} ${steps.join(", ")}`}`);
}

/**
 * Says which rows and values a step back drops.
 *
 * @param mayDrop the step that may drop data, so that a repeated command does not take back the step before it
 * @throws OperatorError unless that is allowed
 */
function confirmBack(tier: Tier, { step, rows, values }: StepBack, mayDrop: string | undefined): void {
  if (mayDrop !== undefined && mayDrop !== step) {
    throw new OperatorError(`Nothing was changed. The last step of ${tier} is ${step}, not ${mayDrop}.`);
  }
  const what = [
    ...[...rows].map(([table, count]) => `${counted(count, "row")} of ${table}`),
    ...[...values].map(([column, count]) => `${counted(count, "value")} of ${column}`),
  ];
  if (what.length === 0) return;
  console.error(`${tier}: taking ${step} back drops ${what.join(", ")}`);
  if (mayDrop === step) return;
  const { service } = schemas[tier];
  throw new OperatorError(`Nothing was changed. Stop every ${service}, make a backup, then add --drop-data ${step}.`);
}
