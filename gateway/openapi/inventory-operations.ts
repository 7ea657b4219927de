import type { RouteConfig } from "@asteasolutions/zod-to-openapi";
import { z } from "zod";
import { headers } from "./headers.ts";
import { needs, paragraphs, secured } from "./operation-parts.ts";
import { parameters } from "./parameters.ts";
import { commonErrors, type ErrorResponse, errorReferences } from "./responses.ts";
import type { Schemas } from "./schemas.ts";

/** GET /inventory */
export function listInventory(schemas: Schemas): RouteConfig {
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

// BadUpdate takes the place of BadRequest: both are 400.
const updateErrors: readonly ErrorResponse[] = [
  ...commonErrors,
  "BadUpdate",
  "NotFound",
  "RequestTimeout",
  "PreconditionFailed",
  "PayloadTooLarge",
  "UnsupportedMediaType",
  "Timeout",
];

/** PATCH /inventory/{petId} */
export function updateInventory(schemas: Schemas): RouteConfig {
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
      ...errorReferences(updateErrors),
    },
  };
}
