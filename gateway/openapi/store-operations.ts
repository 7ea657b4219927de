import type { RouteConfig } from "@asteasolutions/zod-to-openapi";
import { z } from "zod";
import { type HeaderName, headers } from "./headers.ts";
import { needs, paragraphs, secured } from "./operation-parts.ts";
import { parameters } from "./parameters.ts";
import { commonErrors, errorReferences, errorResponses } from "./responses.ts";
import type { Schemas } from "./schemas.ts";

/** When the end of GET /pets/{petId} comes; null for a date that is not announced. */
export interface Announcement {
  readonly deprecatedAt: Date | null;
  readonly sunsetAt: Date | null;
}

/** GET /pets/{petId} */
export function getPet(schemas: Schemas, { deprecatedAt, sunsetAt }: Announcement): RouteConfig {
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

/** GET /store/orders */
export function getOrders(schemas: Schemas): RouteConfig {
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

/** As `1 July 2027, 00:00 UTC`. */
function sayTime(time: Date): string {
  const format = new Intl.DateTimeFormat("en-GB", { dateStyle: "long", timeStyle: "short", timeZone: "UTC" });
  return `${format.format(time).replace(" at ", ", ")} UTC`;
}
