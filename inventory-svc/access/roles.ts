import type { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";

/** What a caller may do: each role includes those before it. */
export const roles = ["reader", "writer", "admin"] as const;
export type Role = (typeof roles)[number];

/** The least role for each call of the contract. Total: the compiler asks for every one. */
export const leastRoles: Readonly<Record<keyof InventoryServiceService, Role>> = {
  listInventory: "reader",
  checkInventory: "reader",
  watchInventory: "reader",
  getInventoryItem: "reader",
  batchGetInventoryItems: "reader",
  updateInventory: "writer",
  applyUpdates: "writer",
  adjustInventory: "writer",
  setStatus: "writer",
  createInventoryItem: "admin",
  removeInventoryItem: "admin",
};

/** Roles by identity: a URI as `spiffe://petstore/gateway`, or `dns:` and a name in lower case. */
export type RoleTable = ReadonlyMap<string, Role>;

const entry = new RegExp(
  `^(?<identity>[a-z][a-z0-9+.-]*://[^\\s,"=]+|dns:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)=(?<role>${roles.join("|")})$`,
);

/**
 * Reads a table as `spiffe://petstore/gateway=writer,dns:reports.internal=reader`.
 *
 * @returns a fault that names the place of the entry, never the entry
 */
export function parseRoles(text: string): RoleTable | { readonly fault: string } {
  const table = new Map<string, Role>();
  for (const [index, part] of text.split(",").entries()) {
    const groups = entry.exec(part.trim())?.groups;
    if (!groups) return { fault: `entry ${index + 1} is not as ${example}` };
    if (table.has(groups.identity!)) return { fault: `entry ${index + 1} names an identity again` };
    table.set(groups.identity!, groups.role as Role);
  }
  return table;
}

const example = `spiffe://petstore/gateway=writer or dns:reports.internal=reader (${roles.join(", ")})`;

/** True when `role` includes `needed`. */
export function includes(role: Role, needed: Role): boolean {
  return roles.indexOf(role) >= roles.indexOf(needed);
}
