/** The part of the chart's schema that says which settings its values may have, and which values each of them takes. */
import { readFileSync } from "node:fs";
import { z } from "zod";
import { gatewaySettings } from "../gateway/config.ts";
import { inventorySettings } from "../inventory-svc/config.ts";
import type { SettingsShape } from "../runtime/settings.ts";

const schemaFile = new URL("chart/values.schema.json", import.meta.url);

/** The settings that the chart fills in by itself, and those that it takes from secrets. */
const notInValues = /_LISTEN$|_TLS_|_DATABASE_URL$|^KEY_PEPPER|^REDIS_URL$|^GATEWAY_REPLICAS$|_ADDRESS$|_INSECURE$/;

/** The text of `values.schema.json`, with the settings of both tiers as they are now. */
export function chartSchema(): string {
  const schema = JSON.parse(readFileSync(schemaFile, "utf8"));
  schema.properties.gateway.properties.settings = settingsSchema(gatewaySettings);
  schema.properties["inventory-svc"].properties.settings = settingsSchema(inventorySettings);
  return `${JSON.stringify(schema, null, 2)}\n`;
}

function settingsSchema(shape: SettingsShape) {
  const inValues = Object.entries(shape).filter(([name]) => !notInValues.test(name));
  return {
    type: "object",
    additionalProperties: false,
    properties: Object.fromEntries(inValues.map(([name, setting]) => [name, textOf(setting)])),
  };
}

/** The texts that a setting takes, in draft 7 of JSON Schema. An empty one counts as not set. */
function textOf(setting: z.ZodType) {
  const { pattern, enum: words } = z.toJSONSchema(setting, { io: "input" });
  if (words) return { enum: ["", ...words] };
  if (pattern) return { type: "string", pattern: `^$|${pattern}` };
  throw new Error("a setting of the chart needs a pattern or a list of its values");
}
