import type { OpenAPIRegistry, RouteConfig } from "@asteasolutions/zod-to-openapi";
import { z } from "zod";
import type { Scope } from "../auth/principal.ts";
import { type HeaderName, headers } from "./headers.ts";
import { parameters } from "./parameters.ts";
import { commonErrors, errorReferences, errorResponses } from "./responses.ts";
import type { Schemas } from "./schemas.ts";

/** When the end of GET /pets/{petId} comes; null for a date that is not announced. */
export interface Announcement {
  readonly deprecatedAt: Date | null;
  readonly sunsetAt: Date | null;
}

/** Name of the security scheme among the document's components. */
export const securityScheme = "apiKey";

export function registerOperations(registry: OpenAPIRegistry, schemas: Schemas, announced: Announcement): void {
  registry.registerPath(listInventory(schemas));
  registry.registerPath(updateInventory(schemas));
  registry.registerPath(getPet(schemas, announced));
  registry.registerPath(getOrders(schemas));
}

function listInventory(schemas: Schemas): RouteConfig {
  return {
    method: "get",
    path: "/inventory",
    operationId: "listInventory",
    tags: ["Inventory"],
    summary: "List the stock of all pets",
    description: paragraphs(
      "Returns the current stock levels for all pets in the store: every entry, ordered by `petId`.",
      "The list is never older than the request: it shows every update that was answered before. With `If-None-Match` " +
        "a list that has not changed costs no transfer (304), and `Accept-Encoding: gzip` makes it smaller.",
      "`HEAD` gives the headers alone.",
      needs("inventory:read"),
    ),
    security: secured("inventory:read"),
    parameters: parameters("IfNoneMatch", "RequestId"),
    responses: {
      200: {
        description: "Every entry.",
        headers: headers(["ListETag", "Vary", "CacheControl"]),
        content: {
          "application/json": {
            schema: z.array(schemas.inventoryItem),
            example: [
              { petId: 1001, quantity: 12, status: "available" },
              { petId: 1002, quantity: 0, status: "sold" },
            ],
          },
        },
      },
      304: {
        description: "The list is the one that `If-None-Match` names.",
        headers: headers(["ListETag", "Vary", "CacheControl"]),
      },
      ...errorReferences([...commonErrors, "Timeout"]),
    },
  };
}

function updateInventory(schemas: Schemas): RouteConfig {
  const json = { schema: schemas.inventoryUpdate, example: { quantity: 12 } };
  return {
    method: "patch",
    path: "/inventory/{petId}",
    operationId: "updateInventory",
    tags: ["Inventory"],
    summary: "Set the stock of one pet (experimental)",
    description: paragraphs(
      "**Experimental:** the shape of the request may change before the operation becomes stable.",
      "Sets the stock quantity for one pet, to record new arrivals, returns or manual adjustments. A 200 means that the " +
        "update is durable, and that every later read shows it or something newer.",
      "The update sets and does not add, so it is safe to repeat one whose answer was lost. Where others write too, " +
        "send the `ETag` of the last update as `If-Match`.",
      needs("inventory:write"),
    ),
    "x-experimental": true,
    security: secured("inventory:write"),
    parameters: parameters("PetId", "IfMatch", "RequestId"),
    request: {
      body: {
        required: true,
        description: "The new stock count, in UTF-8, at most 16 KiB.",
        content: { "application/json": json, "application/merge-patch+json": json },
      },
    },
    responses: {
      200: {
        description: "The updated entry.",
        headers: headers(["EntryETag"]),
        content: {
          "application/json": {
            schema: schemas.inventoryItem,
            example: { petId: 1001, quantity: 12, status: "available" },
          },
        },
      },
      ...errorReferences([
        ...commonErrors,
        "BadUpdate",
        "NotFound",
        "RequestTimeout",
        "PreconditionFailed",
        "PayloadTooLarge",
        "UnsupportedMediaType",
        "Timeout",
      ]),
    },
  };
}

function getPet(schemas: Schemas, { deprecatedAt, sunsetAt }: Announcement): RouteConfig {
  const announcement: HeaderName[] = [];
  if (deprecatedAt) announcement.push("Deprecation");
  if (sunsetAt) announcement.push("Sunset");
  if (announcement.length > 0) announcement.push("DeprecationLink");
  return {
    method: "get",
    path: "/pets/{petId}",
    operationId: "getPet",
    tags: ["Store"],
    deprecated: true,
    ...(sunsetAt && { "x-sunset": sunsetAt.toISOString() }),
    summary: "Read a pet (deprecated)",
    description: paragraphs(
      deprecatedAt ? `**Deprecated** since ${sayTime(deprecatedAt)}.` : "**Deprecated.**",
      sunsetAt
        ? `**Sunset:** from ${sayTime(sunsetAt)} on the operation may answer 410.`
        : "The date of its sunset is not announced yet.",
      "The record comes from the service that owns the pets. `HEAD` gives the headers alone.",
      needs("store:read"),
    ),
    security: secured("store:read"),
    parameters: parameters("PetId", "IfNoneMatch", "RequestId"),
    responses: {
      200: {
        description: "The pet.",
        headers: headers(["RecordETag", ...announcement]),
        content: { "application/json": { schema: schemas.pet } },
      },
      304: {
        description: "The pet is the one that `If-None-Match` names.",
        headers: headers(["RecordETag", ...announcement]),
      },
      ...errorResponses(
        [...commonErrors, "NotFound", "Gone", "PreconditionFailed", "BadGateway", "GatewayTimeout"],
        announcement,
      ),
    },
  };
}

function getOrders(schemas: Schemas): RouteConfig {
  return {
    method: "get",
    path: "/store/orders",
    operationId: "getOrders",
    tags: ["Store"],
    summary: "Read the orders",
    description: paragraphs(
      "The answer comes from the service that owns the orders, and its form is that service's. `HEAD` gives the headers " +
        "alone.",
      needs("store:read"),
    ),
    security: secured("store:read"),
    parameters: parameters("IfNoneMatch", "RequestId"),
    responses: {
      200: {
        description: "The orders: a list of records, or an object that holds it.",
        headers: headers(["RecordETag"]),
        content: { "application/json": { schema: z.union([z.array(schemas.order), z.looseObject({})]) } },
      },
      304: { description: "The orders are those that `If-None-Match` names.", headers: headers(["RecordETag"]) },
      ...errorReferences([...commonErrors, "NotFound", "PreconditionFailed", "BadGateway", "GatewayTimeout"]),
    },
  };
}

/** OpenAPI 3.1 lets the schemes other than OAuth name here what a caller must be allowed to do. */
function secured(scope: Scope) {
  return [{ [securityScheme]: [scope] }];
}

function needs(scope: Scope): string {
  return `Needs the scope \`${scope}\`.`;
}

function paragraphs(...texts: string[]): string {
  return texts.join("\n\n");
}

/** As `1 July 2027, 00:00 UTC`. */
function sayTime(time: Date): string {
  const format = new Intl.DateTimeFormat("en-GB", { dateStyle: "long", timeStyle: "short", timeZone: "UTC" });
  return `${format.format(time).replace(" at ", ", ")} UTC`;
}
