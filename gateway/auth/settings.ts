import { z } from "zod";
import { databaseUrl } from "../../runtime/settings.ts";
import { isRedisUrl } from "../redis/connection.ts";
import { keyEnvPattern } from "./key-format.ts";

/** Where accounts and keys are when nothing else is said. */
export const defaultKeyDatabaseUrl = "sqlite:.data/gateway.sqlite";

/** HMAC-SHA-256 gains nothing from more than 32 random bytes, and a short text can be guessed. */
export const pepperMinLength = 32;

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
