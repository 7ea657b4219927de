import type { Principal } from "../auth/principal.ts";
import type { Snapshot } from "../inventory/list/snapshot.ts";
import type { FlatHeaders } from "./common-headers.ts";

export const routeNames = ["listInventory", "updateInventory", "getPet", "getOrders", "docs", "unknown"] as const;
export type RouteName = (typeof routeNames)[number];

/** What the gateway knows of a request, on `response.locals`. */
export interface Locals {
  requestId: string;
  clientAddress: string;
  /** Unix milliseconds. */
  arrivedAtMs: number;
  /** When it arrived by a clock that only goes forward, to measure by. */
  startedMs: number;
  route: RouteName;
  /** The limit headers; of the address until admission knows better. */
  limits: FlatHeaders;
  /** Set by admission: every route behind it has one. */
  principal: Principal;
  /** Set for a request that is likely to need the list. */
  list: Promise<Snapshot> | undefined;
}
