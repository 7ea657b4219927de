import type { Principal } from "../auth/principal.ts";

export type RouteName = "listInventory" | "updateInventory" | "getPet" | "getOrders" | "docs" | "unknown";

/** What the gateway knows of a request, on `response.locals`. */
export interface Locals {
  requestId: string;
  clientAddress: string;
  /** Unix milliseconds. */
  arrivedAtMs: number;
  route: RouteName;
  /** Set by admission: every route behind it has one. */
  principal: Principal;
}
