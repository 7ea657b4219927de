import ipaddr from "ipaddr.js";
import { z } from "zod";
import {
  databaseUrl,
  describeSettings,
  drainFaults,
  flag,
  integer,
  listenAddress,
  parseIsoTime,
  processSettings,
  readSettings,
  type Settings,
  type SettingsShape,
} from "../runtime/settings.ts";
import { tlsFile, tlsFilesOf, tlsSettingFaults } from "../runtime/tls-files.ts";
import { keyEnvPattern } from "./auth/key-format.ts";
import { defaultKeyDatabaseUrl, pepperFaults, pepperMinLength } from "./auth/pepper.ts";
import { contractPlans, type PlanTable, parsePlans } from "./limits/plans.ts";
import { isRedisUrl } from "./redis/connection.ts";

/** The settings of everything that reads or writes keys: the gateway and the operators' command line. */
export const keySettings = {
  GATEWAY_DATABASE_URL: databaseUrl(defaultKeyDatabaseUrl).describe(
    "accounts and keys: sqlite:path/to/file or mysql://user:password@host:port/database",
  ),
  KEY_PEPPER: z
    .string()
    .min(pepperMinLength, { error: `must be at least ${pepperMinLength} characters` })
    .optional()
    .meta({
      description: `secret under which API keys are hashed, at least ${pepperMinLength} characters; a change ends every key`,
      shownDefault: "none, required; npm start makes one in .data/key-pepper",
    }),
  REDIS_URL: z
    .string()
    .optional()
    .refine((text) => text === undefined || isRedisUrl(text), {
      error: "must be redis://, rediss:// (several parted by commas for a cluster) or sentinel://hosts/name",
    })
    .meta({
      description:
        "Redis or Valkey for the limits of all replicas: redis://, rediss://, several for a cluster, sentinel://",
      shownDefault: "none: limits in memory",
    }),
  GATEWAY_KEY_ENV: z
    .string()
    .default("live")
    .refine((text) => keyEnvPattern.test(text), { error: "must be 1 to 16 lower-case letters and digits" })
    .describe("names this deployment in the keys that it issues: ps_<env>_…"),
};

/** Every setting of the gateway. */
export const gatewaySettings = {
  GATEWAY_LISTEN: listenAddress("127.0.0.1:8080").describe("public address"),
  GATEWAY_ADMIN_LISTEN: listenAddress("127.0.0.1:8081").describe("operators' address: /livez, /readyz, /metrics"),
  GATEWAY_SERVERS: list(
    (url) => URL.canParse(url) && new URL(url).pathname.endsWith("/v1"),
    "must be URLs that end in /v1, parted by commas",
  ).meta({
    description: "public base addresses, for the OpenAPI document",
    shownDefault: "none: ./v1 beside the document",
  }),
  ...keySettings,
  GATEWAY_REPLICAS: integer(1, 1, 10_000).describe("gateways that share the limits: shares when Redis is away"),
  INVENTORY_ADDRESS: z.string().default("127.0.0.1:50051").describe("gRPC target, dns:///host:port for many"),
  GATEWAY_INVENTORY_TLS_CA: tlsFile("PEM file: authorities whose certificate the inventory service must have"),
  GATEWAY_INVENTORY_TLS_CERT: tlsFile("PEM file: certificate of the gateway for the inventory service"),
  GATEWAY_INVENTORY_TLS_KEY: tlsFile("PEM file: its private key"),
  GATEWAY_INVENTORY_TLS_SERVER_NAME: z.string().optional().meta({
    description: "name that the inventory service's certificate must have",
    shownDefault: "none: the host of INVENTORY_ADDRESS",
  }),
  INVENTORY_TIMEOUT_MS: integer(5_000, 50, 60_000).describe("deadline of a call to the inventory service"),
  LIST_TIMEOUT_MS: integer(15_000, 50, 600_000).describe(
    "deadline of loading the whole list, at the start and after a restore",
  ),
  BODY_TIMEOUT_MS: integer(10_000, 50, 60_000).describe("how long a request's body may take to arrive"),
  STALL_TIMEOUT_MS: integer(30_000, 100, 600_000).describe("a reader that takes nothing for so long is cut off"),
  KEEP_ALIVE_TIMEOUT_MS: integer(75_000, 1_000, 3_600_000).describe(
    "idle time of a public connection; more than the load balancer's",
  ),
  MAX_CONNECTIONS: integer(10_000, 1, 1_000_000).describe("public connections at the most; more are closed at once"),
  OVERLOAD_DELAY_MS: integer(100, 10, 60_000).describe("an overload begins when the event loop is late by more"),
  OVERLOAD_REQUESTS: integer(320, 1, 1_000_000).describe("requests that may wait for an answer during one; 503 beyond"),
  SLOW_READERS_MIB: integer(256, 1, 1_000_000).describe(
    "memory for older versions of the list that are still being sent; 503 beyond",
  ),
  PETS_UPSTREAM_URL: upstream("the service that owns the pets"),
  ORDERS_UPSTREAM_URL: upstream("the service that owns the orders"),
  UPSTREAM_TIMEOUT_MS: integer(5_000, 50, 60_000).describe("longest wait for the answer of those services"),
  PETS_DEPRECATED_AT: time("2026-01-01T00:00:00Z", "since when GET /pets/{petId} is deprecated"),
  PETS_SUNSET_AT: time("2027-07-01T00:00:00Z", "when GET /pets/{petId} may go away"),
  PETS_GONE_AFTER_SUNSET: flag(false).describe("1 answers GET /pets/{petId} with 410 after that"),
  TRUSTED_PROXIES: list(isAddressOrCidr, "must be addresses or CIDRs but not /0, parted by commas").meta({
    description: "proxies whose X-Forwarded-For counts",
    shownDefault: "none",
  }),
  ADDRESS_GUARD_PER_MINUTE: integer(60, 1, 1_000_000).describe("requests without a valid key from one address"),
  PLAN_LIMITS: z
    .string()
    .optional()
    .transform((text, context): PlanTable => {
      const plans = text === undefined ? contractPlans : parsePlans(text, contractPlans);
      if (plans) return plans;
      context.addIssue("must be as free=60/1000,pro=300/10000,business=1000/100000: requests per minute / per day");
      return z.NEVER;
    })
    .meta({
      description: "limits of the plans, requests per minute / per day",
      shownDefault: "free=60/1000,pro=300/10000,business=1000/100000",
    }),
  BAN_REFUSALS_PER_MINUTE: integer(30, 1, 1_000_000).describe("refusals within a minute that bring a ban"),
  BAN_LADDER_MINUTES: z
    .string()
    .default("5,15,60")
    .refine((text) => /^[1-9]\d{0,5}(,[1-9]\d{0,5})*$/.test(text), { error: "must be minutes parted by commas" })
    .transform((text) => text.split(",").map(Number))
    .describe("length of the first, second, … ban; the last repeats"),
  ...processSettings,
} satisfies SettingsShape;

/** The settings as text, as the environment has them. */
export type GatewayEnv = { readonly [Name in keyof typeof gatewaySettings]?: string | undefined };

export type GatewayConfig = Settings<typeof gatewaySettings>;

const tlsNames = {
  cert: "GATEWAY_INVENTORY_TLS_CERT",
  key: "GATEWAY_INVENTORY_TLS_KEY",
  ca: "GATEWAY_INVENTORY_TLS_CA",
} as const;

/** What TLS to the inventory service takes; undefined for a connection without. */
export function inventoryTls(config: GatewayConfig) {
  const files = tlsFilesOf(config, tlsNames);
  return files && { ...files, serverName: config.GATEWAY_INVENTORY_TLS_SERVER_NAME };
}

/**
 * Checks the settings and makes values of them.
 *
 * @param env `process.env`, or an object of settings: what is absent, undefined or empty has its default
 * @throws SettingsError naming every fault
 */
export function readGatewayConfig(env: GatewayEnv): GatewayConfig {
  return readSettings(gatewaySettings, env, (settings) => [
    ...pepperFaults(settings),
    ...tlsSettingFaults(settings, tlsNames),
    ...drainFaults(settings),
    ...(settings.PETS_DEPRECATED_AT && settings.PETS_SUNSET_AT && settings.PETS_SUNSET_AT < settings.PETS_DEPRECATED_AT
      ? ["PETS_SUNSET_AT: must not be before PETS_DEPRECATED_AT (RFC 9745 section 4)"]
      : []),
  ]);
}

export const gatewayHelp = `gateway: the public REST API of the petstore inventory

Settings, from the environment or a .env file:
${describeSettings(gatewaySettings)}`;

/** Entries parted by commas; none when not set. */
function list(isEntry: (entry: string) => boolean, rule: string) {
  return z
    .string()
    .default("")
    .transform((text) => text.split(",").flatMap((entry) => entry.trim() || []))
    .refine((entries) => entries.every(isEntry), { error: rule });
}

function upstream(description: string) {
  return z
    .string()
    .optional()
    .refine((text) => text === undefined || (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)), {
      error: "must be an http or https URL",
    })
    .transform((text) => (text === undefined ? null : new URL(text)))
    .meta({ description, shownDefault: "none: 503" });
}

function time(byDefault: string, description: string) {
  return z
    .string()
    .default(byDefault)
    .transform((text, context): Date | null => {
      if (text === "none") return null;
      const ms = parseIsoTime(text);
      if (ms !== undefined) return new Date(ms);
      context.addIssue("must be a day or a time with its offset in ISO 8601, as 2027-07-01T00:00:00Z, or none");
      return z.NEVER;
    })
    .meta({ description: `${description}, or none`, shownDefault: byDefault });
}

function isAddressOrCidr(text: string): boolean {
  const [address = "", bits, ...rest] = text.split("/");
  if (rest.length > 0 || !ipaddr.isValid(address)) return false;
  const most = ipaddr.parse(address).kind() === "ipv4" ? 32 : 128;
  // Whom everyone may pass for is no proxy, so proxy-addr takes no /0.
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) >= 1 && Number(bits) <= most);
}
