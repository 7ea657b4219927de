import { OpenAPIRegistry, OpenApiGeneratorV31 } from "@asteasolutions/zod-to-openapi";
import { type UsageRules, usage } from "./description.ts";
import { registerHeaders } from "./headers.ts";
import { listInventory, updateInventory } from "./inventory-operations.ts";
import { securityScheme } from "./operation-parts.ts";
import { registerParameters } from "./parameters.ts";
import { registerResponses } from "./responses.ts";
import { registerSchemas } from "./schemas.ts";
import { type Announcement, getOrders, getPet } from "./store-operations.ts";

export interface OpenApiOptions extends Announcement, Omit<UsageRules, "limitsPer"> {
  /** Base addresses, each ending in /v1. Without any, the one that stands beside the document. */
  readonly servers: readonly { readonly url: string; readonly description: string }[];
  /** Whose requests a limit counts together. Default: account. */
  readonly limitsPer?: UsageRules["limitsPer"];
}

export type OpenApiDocument = ReturnType<OpenApiGeneratorV31["generateDocument"]>;

/**
 * The OpenAPI 3.1 description of the public API. Its schemas are those that check requests, its errors those of the
 * table that answers them, and its numbers those of this deployment.
 */
export function openApiDocument({ servers, limitsPer = "account", ...options }: OpenApiOptions): OpenApiDocument {
  const registry = new OpenAPIRegistry();
  registry.registerComponent("securitySchemes", securityScheme, {
    type: "http",
    scheme: "bearer",
    bearerFormat: "API key",
    description: "The API key as a bearer token.",
  });
  registerHeaders(registry);
  registerResponses(registry);
  registerParameters(registry);
  const schemas = registerSchemas(registry);
  registry.registerPath(listInventory(schemas));
  registry.registerPath(updateInventory(schemas));
  registry.registerPath(getPet(schemas, options));
  registry.registerPath(getOrders(schemas));

  return new OpenApiGeneratorV31(registry.definitions).generateDocument({
    openapi: "3.1.0",
    info: {
      title: "Petstore Inventory",
      version: "1.0.0",
      description: usage({ ...options, limitsPer }),
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: serverList(servers),
    tags: [
      { name: "Inventory", description: "The stock of the pets." },
      { name: "Store", description: "Records that other services own, passed through." },
    ],
  });
}

function serverList(servers: OpenApiOptions["servers"]) {
  if (servers.length === 0) return [{ url: "./v1", description: "Beside this document" }];
  return servers.map(({ url, description }) => (description === "" ? { url } : { url, description }));
}
