/** Every setting of inventory-svc. */
import { z } from "zod";
import {
  databaseUrl,
  drainFaults,
  flag,
  integer,
  isLoopback,
  listenAddressSchema,
  processSettings,
  readSettings,
} from "../runtime/settings.ts";
import { tlsFile, tlsFilesOf, tlsSettingFaults } from "../runtime/tls-files.ts";
import { parseRoles, type RoleTable } from "./access/roles.ts";

const minute = 60_000;

export const inventorySettings = {
  INVENTORY_LISTEN: listenAddressSchema("127.0.0.1:50051").describe("gRPC address"),
  INVENTORY_ADMIN_LISTEN: listenAddressSchema("127.0.0.1:50052").describe(
    "operators' address: /livez, /readyz, /metrics",
  ),
  INVENTORY_DATABASE_URL: databaseUrl("sqlite:.data/inventory.sqlite").describe(
    "the stock: sqlite:path or mysql://user:password@host:port/database",
  ),
  INVENTORY_DATABASE_POOL: integer(10, 1, 500).describe("maximum connections to the database"),
  INVENTORY_DATABASE_TIMEOUT_MS: integer(3_000, 100, 10 * minute).describe(
    "longest silence of the database before its connection is closed",
  ),
  INVENTORY_MAX_BATCH: integer(1_000, 1, 5_000).describe("maximum changes in one transaction"),
  INVENTORY_MAX_QUEUED: integer(10_000, 1, 1_000_000).describe("maximum changes that wait for a transaction"),
  INVENTORY_HISTORY_DAYS: integer(30, 0, 3_650).describe(
    "how long the ledger keeps changes; 0 keeps only what answers repeats, for a day",
  ),
  INVENTORY_MAX_CONNECTION_AGE_MS: integer(5 * minute, 1_000, 24 * 60 * minute).describe(
    "age at which a client is asked to reconnect, so that new replicas get their share",
  ),
  INVENTORY_TLS_CERT: tlsFile("PEM file: certificate of the service"),
  INVENTORY_TLS_KEY: tlsFile("PEM file: its private key"),
  INVENTORY_TLS_CLIENT_CA: tlsFile("PEM file: authorities whose certificates callers must have"),
  INVENTORY_TLS_ROLES: z
    .string()
    .optional()
    .transform((text, context): RoleTable | undefined => {
      const table = text === undefined ? undefined : parseRoles(text);
      if (table === undefined || !("fault" in table)) return table;
      context.addIssue(table.fault);
      return z.NEVER;
    })
    .meta({
      description:
        "roles of callers by the names in their certificates: spiffe://petstore/gateway=writer,dns:reports.internal=reader",
      shownDefault: "none: required with TLS",
    }),
  INVENTORY_INSECURE: flag(false).describe("1 allows gRPC without TLS on an address that is not loopback"),
  ...processSettings,
} satisfies Record<string, z.ZodType>;

/** The settings of the operators' commands for the stock. */
export const stockCommandSettings = {
  INVENTORY_DATABASE_URL: inventorySettings.INVENTORY_DATABASE_URL,
  INVENTORY_DATABASE_TIMEOUT_MS: inventorySettings.INVENTORY_DATABASE_TIMEOUT_MS,
  INVENTORY_HISTORY_DAYS: inventorySettings.INVENTORY_HISTORY_DAYS,
};

/** How messages refer to the setting of the database: with its tier. */
export const stockDatabaseSetting = "INVENTORY_DATABASE_URL (inventory-svc)";

export type InventoryConfig = ReturnType<typeof readInventoryConfig>;

const tlsNames = { cert: "INVENTORY_TLS_CERT", key: "INVENTORY_TLS_KEY", ca: "INVENTORY_TLS_CLIENT_CA" } as const;

/** The files for TLS; undefined when callers connect without TLS. */
export const serviceTls = (config: Partial<InventoryConfig>) => tlsFilesOf(config, tlsNames);

/** @throws SettingsError naming every fault */
export function readInventoryConfig(env: NodeJS.ProcessEnv) {
  return readSettings(inventorySettings, env, (settings) => {
    const { INVENTORY_LISTEN, INVENTORY_INSECURE, INVENTORY_TLS_ROLES } = settings;
    const faults = [...drainFaults(settings), ...tlsSettingFaults(settings, tlsNames)];
    const usesTls = serviceTls(settings) !== undefined;
    const readsRoles = "INVENTORY_TLS_ROLES" in settings; // a table that could not be read has its own fault
    if (readsRoles && faults.length === 0 && usesTls !== (INVENTORY_TLS_ROLES !== undefined)) {
      faults.push(`INVENTORY_TLS_ROLES: must be set with ${tlsNames.cert}, and only then`);
    }
    if (INVENTORY_LISTEN && !isLoopback(INVENTORY_LISTEN.host) && !usesTls && !INVENTORY_INSECURE) {
      faults.push("INVENTORY_LISTEN: without TLS it must be a loopback address, unless INVENTORY_INSECURE=1 is set");
    }
    return faults;
  });
}
