/** Writes the types of the REST client from the schemas of the OpenAPI document: `npm run generate`. */
import { writeFileSync } from "node:fs";
import { publishedPlans } from "../accounts/keys/plans.ts";
import { publishedBanRules } from "../admission/bans.ts";
import { openApiDocument } from "./document.ts";

/** What the client gives to its callers, by the name of its schema. */
const names: Readonly<Record<string, string>> = {
  PetStatus: "PetStatus",
  InventoryItem: "InventoryItem",
  InventoryChanges: "InventoryChanges",
  EntryWithETag: "InventoryEntry",
  UpdatedItem: "UpdatedEntry",
  InventoryHistory: "InventoryHistory",
  PastChange: "PastChange",
  RateLimitStatus: "RateLimitStatus",
  Usage: "Usage",
  RotatedKey: "RotatedKey",
  Pet: "Pet",
  Order: "Order",
  Error: "ErrorBody", // the other name is JavaScript's own
};

/** What these schemas use of JSON Schema. */
interface Schema {
  readonly $ref?: string;
  readonly description?: string;
  readonly type?: string | readonly string[];
  readonly format?: string;
  readonly enum?: readonly (string | number)[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: false | object;
}

export const clientTypesFile = new URL("../../rest-client/types.ts", import.meta.url);

/** The text of the file of types. An int64 is a bigint in it. */
export function clientTypes(): string {
  const document = openApiDocument({
    servers: [],
    plans: publishedPlans,
    banRules: publishedBanRules,
    addressGuardPerMinute: 60,
    keyedUpdatesPerDay: 200_000,
    hasKeyRotation: true,
    deprecations: {},
  });
  const { schemas } = document.components as unknown as { readonly schemas: Readonly<Record<string, Schema>> };
  const types = Object.entries(names).map(([name, type]) => {
    const schema = schemas[name]!;
    return `${comment(schema, "")}export type ${type} = ${typeOf(schema, "")};\n`;
  });
  const head =
    "/** What the API answers. Generated from gateway/openapi/openapi.yaml by `npm run generate`; do not edit. */\n";
  return [head, ...types].join("\n");
}

function typeOf(schema: Schema, indent: string): string {
  if (schema.$ref) return names[schema.$ref.split("/").at(-1)!]!;
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (typeof schema.type === "string") return typeNamed(schema.type, schema, indent);
  return schema.type!.map((type) => typeNamed(type, schema, indent)).join(" | ");
}

function typeNamed(type: string, schema: Schema, indent: string): string {
  switch (type) {
    case "array":
      return `readonly (${typeOf(schema.items!, indent)})[]`;
    case "object":
      return `{\n${members(schema, `${indent}  `)}${indent}}`;
    case "integer":
      return schema.format === "int64" ? "bigint" : "number";
    default:
      return type; // string, boolean and null
  }
}

function members({ properties = {}, required = [], additionalProperties }: Schema, indent: string): string {
  const lines = Object.entries(properties).map(([name, schema]) => {
    const optional = required.includes(name) ? "" : "?";
    return `${comment(schema, indent)}${indent}readonly ${name}${optional}: ${typeOf(schema, indent)};\n`;
  });
  return lines.join("") + (additionalProperties ? `${indent}readonly [member: string]: unknown;\n` : "");
}

function comment({ description }: Schema, indent: string): string {
  return description === undefined ? "" : `${indent}/** ${description} */\n`;
}

if (import.meta.main) writeFileSync(clientTypesFile, clientTypes());
