/**
 * The settings of the gateway and of the commands that manage keys. Those of deprecations, and those of both tiers, are
 * imported.
 */
import ipaddr from "ipaddr.js";
import { z } from "zod";
import {
  databaseUrl,
  drainFaults,
  flag,
  integer,
  listenAddressSchema,
  processSettings,
  readSettings,
  type Settings,
  type SettingsShape,
  textLike,
} from "../runtime/settings.ts";
import { tlsFile, tlsFilesOf, tlsSettingFaults } from "../runtime/tls-files.ts";
import { keyEnvPattern } from "./accounts/keys/key-format.ts";
import { defaultKeyDatabaseUrl, pepperFaults, pepperMinLength } from "./accounts/keys/pepper.ts";
import { formatPlans, parsePlans, plansFault, plansPattern, publishedPlans } from "./accounts/keys/plans.ts";
import { deprecationSettings, sunsetFaults } from "./deprecation-settings.ts";
import { isRedisUrl } from "./limits/redis-connection.ts";

/** The settings of everything that reads or writes keys: the gateway and the operators' commands. */
export const keySettings = {
  GATEWAY_DATABASE_URL: databaseUrl(defaultKeyDatabaseUrl).describe(
    "accounts and keys: sqlite:path/to/file or mysql://user:password@host:port/database",
  ),
  KEY_PEPPER: pepper().meta({
    description: `secret under which API keys are made and hashed, at least ${pepperMinLength} characters`,
    shownDefault: "none, required; npm start makes one in .data/key-pepper",
  }),
  KEY_PEPPER_OLD: pepper().describe("the pepper before it: keys that were made under it work as long as this is set"),
  REDIS_URL: z
    .string()
    .optional()
    .refine((text) => text === undefined || isRedisUrl(text), {
      error: "must be redis:// or rediss:// (comma-separated for a cluster) or sentinel://hosts/name",
    })
    .meta({
      description:
        "Redis or Valkey for the limits of all replicas: redis://, rediss://, several for a cluster, sentinel://",
      shownDefault: "none: limits in memory",
    }),
  GATEWAY_KEY_ENV: z
    .string()
    .regex(keyEnvPattern, { error: "must be 1 to 16 lower-case letters and digits" })
    .default("live")
    .describe("names this deployment in the keys that it issues: ps_<env>_…"),
};

/** How messages name the setting of the database of keys: with its tier. */
export const keyDatabaseSetting = "GATEWAY_DATABASE_URL (gateway)";

const octet = "(?:25[0-5]|2[0-4]\\d|1?\\d?\\d)";
// proxy-addr refuses /0: it would trust every client.
const addressOrCidr = [
  `${octet}(?:\\.${octet}){3}(?:/(?:[1-9]|[12]\\d|3[0-2]))?`,
  "[0-9a-fA-F]*:[0-9a-fA-F:.]*(?:/(?:[1-9]\\d?|1[01]\\d|12[0-8]))?",
].join("|");

export const gatewaySettings = {
  GATEWAY_LISTEN: listenAddressSchema("127.0.0.1:8080").describe("public address"),
  GATEWAY_ADMIN_LISTEN: listenAddressSchema("127.0.0.1:8081").describe("operators' address: /livez, /readyz, /metrics"),
  GATEWAY_SERVERS: list(
    "https?://[^/?#,\\s]+(?:/[^?#,\\s]*)?/v1",
    (url) => URL.canParse(url),
    "must be comma-separated URLs ending in /v1",
  ).meta({
    description: "public base addresses, for the OpenAPI document",
    shownDefault: "none: ./v1 beside the document",
  }),
  ...keySettings,
  GATEWAY_REPLICAS: integer(1, 1, 10_000).describe(
    "gateways that share the limits; each admits its share while Redis is away",
  ),
  INVENTORY_ADDRESS: z
    .string()
    .refine((address) => !/^https?:/i.test(address), "must be a gRPC target, as in 127.0.0.1:50051, and no URL")
    .default("127.0.0.1:50051")
    .describe("gRPC target, dns:///host:port for many"),
  GATEWAY_INVENTORY_TLS_CA: tlsFile("PEM file: authorities that may sign the inventory service's certificate"),
  GATEWAY_INVENTORY_TLS_CERT: tlsFile("PEM file: the gateway's certificate for the inventory service"),
  GATEWAY_INVENTORY_TLS_KEY: tlsFile("PEM file: its private key"),
  GATEWAY_INVENTORY_TLS_SERVER_NAME: z.string().optional().meta({
    description: "name in the inventory service's certificate",
    shownDefault: "none: the host of INVENTORY_ADDRESS",
  }),
  INVENTORY_TIMEOUT_MS: integer(5_000, 50, 60_000).describe(
    "longest wait of a request for the inventory service, from its arrival; also for each part of a list that is loaded; up to 40 ms and 0.5 % of it are kept back for clocks of different rates, so give it 500 or more",
  ),
  KEYED_UPDATE_TIMEOUT_MS: integer(30_000, 50, 600_000).describe(
    "how long an update with an Idempotency-Key is repeated, from the arrival of its request",
  ),
  BODY_TIMEOUT_MS: integer(10_000, 50, 60_000).describe("longest time for a request's body to arrive"),
  STALL_TIMEOUT_MS: integer(30_000, 100, 600_000).describe("a reader that takes nothing in this time is cut off"),
  KEEP_ALIVE_TIMEOUT_MS: integer(75_000, 1_000, 3_600_000).describe(
    "idle time after which a public connection is closed; longer than the load balancer's",
  ),
  MAX_CONNECTIONS: integer(20_000, 1, 1_000_000).describe(
    "maximum public connections, half of the free ones for one address; further ones are closed",
  ),
  MAX_HELD_REQUESTS: integer(10_000, 0, 1_000_000).describe(
    "maximum requests that wait for a change (Prefer: wait), an account at most half of what others leave",
  ),
  OVERLOAD_DELAY_MS: integer(100, 10, 60_000).describe("lateness of the event loop at which an overload begins"),
  OVERLOAD_REQUESTS: integer(320, 1, 1_000_000).describe(
    "maximum requests that wait for an answer during an overload; further ones get 503",
  ),
  SLOW_READERS_MIB: integer(256, 1, 1_000_000).describe(
    "memory that slow readers of the list, and the old versions that they read, may take; above it the slowest are cut off",
  ),
  PETS_UPSTREAM_URL: upstream("the service that owns the pets"),
  ORDERS_UPSTREAM_URL: upstream("the service that owns the orders"),
  UPSTREAM_TIMEOUT_MS: integer(5_000, 50, 60_000).describe("longest wait for the answer of those two services"),
  ...deprecationSettings,
  TRUSTED_PROXIES: list(
    addressOrCidr,
    (text) => ipaddr.isValid(text.split("/", 1)[0]!),
    "must be comma-separated addresses or CIDRs other than /0",
  ).meta({
    description: "proxies whose X-Forwarded-For counts",
    shownDefault: "none",
  }),
  ADDRESS_GUARD_PER_MINUTE: integer(60, 1, 1_000_000).describe(
    "requests a minute without a valid key from one address",
  ),
  PLAN_LIMITS: textLike(plansPattern, ({ input }) => plansFault(String(input)))
    .default(formatPlans(publishedPlans))
    .transform(parsePlans)
    .meta({
      description: "limits of the plans, requests per minute / per day",
      shownDefault: formatPlans(publishedPlans),
    }),
  KEY_ROTATION: flag(false).describe(
    "1 enables POST /v1/keys/rotate for keys with the scope keys:rotate; needs INSERT on api_keys; npm start sets it",
  ),
  KEYED_UPDATES_PER_DAY: integer(200_000, 1, 1_000_000_000).describe(
    "entries that an account may update in a day with an Idempotency-Key; each leaves a record for at least 26 hours",
  ),
  BAN_REFUSALS_PER_MINUTE: integer(30, 1, 1_000_000).describe(
    "429s of the account's windows within a minute that lead to a ban; those in the first second do not count",
  ),
  BAN_LADDER_MINUTES: textLike("[1-9]\\d{0,5}(?:,[1-9]\\d{0,5})*", "must be comma-separated minutes")
    .default("5,15,60")
    .transform((text) => text.split(",").map(Number))
    .describe("minutes of the first, second, … ban; the last one repeats"),
  ...processSettings,
} satisfies SettingsShape;

/** The settings as text, in the form of the environment. */
export type GatewayEnv = { readonly [Name in keyof typeof gatewaySettings]?: string | undefined };

export type GatewayConfig = Settings<typeof gatewaySettings>;

const tlsNames = {
  cert: "GATEWAY_INVENTORY_TLS_CERT",
  key: "GATEWAY_INVENTORY_TLS_KEY",
  ca: "GATEWAY_INVENTORY_TLS_CA",
} as const;

/** The files and the server name for TLS to the inventory service; undefined for a connection without TLS. */
export function inventoryTls(config: GatewayConfig) {
  const files = tlsFilesOf(config, tlsNames);
  return files && { ...files, serverName: config.GATEWAY_INVENTORY_TLS_SERVER_NAME };
}

/**
 * Checks the settings and converts them to values.
 *
 * @param env `process.env`, or an object of settings; an absent, undefined or empty one has its default
 * @throws SettingsError naming every fault
 */
export function readGatewayConfig(env: GatewayEnv): GatewayConfig {
  return readSettings(gatewaySettings, env, (settings) => [
    ...pepperFaults(settings),
    ...tlsSettingFaults(settings, tlsNames),
    ...drainFaults(settings),
    ...sunsetFaults(settings),
  ]);
}

function pepper() {
  const error = `must be at least ${pepperMinLength} characters, as of openssl rand -hex 32`;
  return z.string().min(pepperMinLength, { error }).optional();
}

/** Comma-separated entries, each of the form of a pattern and valid; none when not set. */
function list(entry: string, isValid: (entry: string) => boolean, rule: string) {
  const entries = `(?:${entry})(?:\\s*,[\\s,]*(?:${entry}))*`;
  return textLike(`[\\s,]*(?:${entries})?[\\s,]*`, rule)
    .default("")
    .transform((text) => text.split(",").flatMap((each) => each.trim() || []))
    .refine((all) => all.every(isValid), { error: rule });
}

function upstream(description: string) {
  const error = "must be an http or https URL";
  return textLike("[hH][tT][tT][pP][sS]?:\\S+", error)
    .refine((text) => URL.canParse(text), { error })
    .optional()
    .transform((text) => (text === undefined ? null : new URL(text)))
    .meta({ description, shownDefault: "none: 503" });
}
