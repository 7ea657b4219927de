/** The route table: every operation of the public API, each with what it asks of its callers. */
import type { RequestHandler } from "express";
import { SettingsError } from "../runtime/settings.ts";
import { getUsage, type UsageOptions } from "./accounts/own/own-usage.ts";
import { getRateLimit } from "./accounts/own/rate-limit.ts";
import { type RotateKeyOptions, rotateOwnKey } from "./accounts/own/rotate-key.ts";
import type { Admission, OperationAccess } from "./admission/admission.ts";
import { type Deprecation, type DeprecationNotices, toDeprecation } from "./http/deprecations.ts";
import { readPetId } from "./inventory/input.ts";
import { getInventoryHistory, type HistoryOptions } from "./inventory/reads/history-handler.ts";
import {
  getInventoryItem,
  listInventory,
  listInventoryChanges,
  type ReadInventoryOptions,
} from "./inventory/reads/read-handlers.ts";
import type { StockClient } from "./inventory/stock-client.ts";
import {
  adjustInventory,
  bulkUpdateInventory,
  type UpdateInventoryOptions,
  updateInventory,
} from "./inventory/updates/update-handlers.ts";
import type { PassThrough } from "./passthrough/handler.ts";

export interface Operation extends OperationAccess {
  /**
   * Its operationId in `openapi.yaml`, which also names it in metrics, logs, spans, `DEPRECATIONS`, and in the
   * fingerprints and counts that are kept: never rename one.
   */
  readonly name: string;
  /**
   * Names of its query parameters: a request with another one is refused. Undefined for the four operations of
   * the specification (README), which ignore what they do not know.
   */
  readonly query?: readonly string[];
  /** Set for an operation that is going to end. */
  readonly deprecation?: Deprecation;
  /** Answers, or hands an error to `next`. Admission has let the request in. */
  readonly handler: RequestHandler;
}

/** Operations by method and path. GET answers HEAD too, and every other method is 405. */
export type RouteTable = Readonly<Record<`${"GET" | "PATCH" | "POST"} /v1/${string}`, Operation>>;

export interface OperationDeps extends ReadInventoryOptions, HistoryOptions, UpdateInventoryOptions, UsageOptions {
  readonly stock: StockClient;
  readonly admission: Pick<Admission, "isKeyKnownGood" | "reverifyKeyAndBan" | "reverifyKey">;
  readonly pets: PassThrough;
  readonly orders: PassThrough;
  /** Undefined where callers may not rotate their keys. */
  readonly keyRotation: RotateKeyOptions | undefined;
}

/**
 * Announces the end of operations of a table.
 *
 * @throws SettingsError for an operation that the table does not have
 */
export function withDeprecations(table: RouteTable, announcements: DeprecationNotices): RouteTable {
  const routes = Object.entries(table);
  const unknown = Object.keys(announcements).filter((name) => !routes.some(([, operation]) => operation.name === name));
  if (unknown.length > 0) throw new SettingsError([`DEPRECATIONS: there is no operation ${unknown.join(", ")}`]);
  return Object.fromEntries(
    routes.map(([route, operation]) => {
      const announcement = announcements[operation.name];
      return [
        route,
        announcement ? { ...operation, deprecation: toDeprecation(announcement, route, operation.name) } : operation,
      ];
    }),
  );
}

export function routeTable(deps: OperationDeps): RouteTable {
  const { list, pets, orders, keyRotation } = deps;
  const readList = (arrivedMs: number) => list.readFresh(arrivedMs);
  return {
    "GET /v1/inventory": {
      name: "listInventory",
      scope: "inventory:read",
      prefetch: readList,
      handler: listInventory(deps),
    },
    // Fixed paths stand first: the router takes the first match, and a path with a petId would match them, too.
    "GET /v1/inventory/changes": {
      name: "listInventoryChanges",
      query: ["since"],
      scope: "inventory:read",
      prefetch: readList,
      handler: listInventoryChanges(deps),
    },
    "POST /v1/inventory/updates": {
      name: "bulkUpdateInventory",
      query: [],
      scope: "inventory:write",
      handler: bulkUpdateInventory(deps),
    },
    "POST /v1/inventory/adjustments": {
      name: "adjustInventory",
      query: [],
      scope: "inventory:write",
      handler: adjustInventory(deps),
    },
    "GET /v1/inventory/:petId": {
      name: "getInventoryItem",
      query: [],
      scope: "inventory:read",
      prefetch: readList,
      handler: getInventoryItem(deps),
    },
    "PATCH /v1/inventory/:petId": {
      name: "updateInventory",
      scope: "inventory:write",
      handler: updateInventory(deps),
    },
    "GET /v1/inventory/:petId/history": {
      name: "getInventoryHistory",
      query: ["limit", "before"],
      scope: "inventory:read",
      handler: getInventoryHistory(deps),
    },
    "GET /v1/pets/:petId": {
      name: "getPet",
      scope: "store:read",
      handler: pets(({ petId }) => `/pets/${readPetId(petId)}`),
    },
    "GET /v1/store/orders": {
      name: "getOrders",
      scope: "store:read",
      handler: orders(() => "/store/orders"),
    },
    "GET /v1/rate_limit": {
      name: "getRateLimit",
      query: [],
      scope: null,
      isUncharged: true,
      handler: getRateLimit(deps),
    },
    "GET /v1/usage": {
      name: "getUsage",
      query: ["hours"],
      scope: null,
      isUncharged: true,
      handler: getUsage(deps),
    },
    ...(keyRotation && {
      "POST /v1/keys/rotate": {
        name: "rotateKey",
        query: [],
        scope: "keys:rotate",
        handler: rotateOwnKey(keyRotation),
      },
    }),
  };
}
