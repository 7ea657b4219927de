// The command that migrates both schemas, and what it prints.
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import type { Migration } from "../../runtime/database/migrations.ts";
import { runScript } from "./processes.ts";

export const schemas = [
  ["gateway", gatewayMigrations],
  ["inventory", stockMigrations],
] as const;
export const stepsOf = (migrations: readonly Migration[]) => migrations.map(({ name }) => name);
/** The output of the command when it takes all steps of these schemas. */
export const outputOf = (names: readonly string[]) =>
  schemas
    .filter(([schema]) => names.includes(schema))
    .map(([schema, migrations]) => `${schema}: up ${stepsOf(migrations).join(", ")}\n`)
    .join("");

/** Runs the command on both schemas, or on those that `args` names. */
export const command = (env: Record<string, string>, ...args: string[]) =>
  runScript({ script: "deploy/migrate.ts", args, env });
export const bothIn = (url: string) => ({ GATEWAY_DATABASE_URL: url, INVENTORY_DATABASE_URL: url });
