/** The roles of internal callers: what each call needs, and the table of roles by identity. */
import type { InventoryServiceService } from "../../proto/gen/petstore/inventory/v1/inventory.ts";

/** The roles of callers. Each role includes those before it. */
export const roles = ["reader", "writer", "admin"] as const;
export type Role = (typeof roles)[number];

/** The least role for each call of the contract. The compiler requires an entry for every call. */
export const leastRoles: Readonly<Record<keyof InventoryServiceService, Role>> = {
  listInventory: "reader",
  checkInventory: "reader",
  watchInventory: "reader",
  getInventoryItem: "reader",
  batchGetInventoryItems: "reader",
  listChanges: "reader",
  updateInventory: "writer",
  applyChanges: "writer",
  adjustInventory: "writer",
  batchAdjustInventory: "writer",
  setStatus: "writer",
  createInventoryItem: "admin",
  removeInventoryItem: "admin",
};

/** Roles by identity: a URI such as `spiffe://petstore/gateway`, or `dns:` and a name in lower case. */
export type RoleTable = ReadonlyMap<string, Role>;

const entry = new RegExp(
  `^(?<identity>[a-z][a-z0-9+.-]*://[^\\s,"=]+|dns:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)=(?<role>${roles.join("|")})$`,
);

/**
 * Parses a table such as `spiffe://petstore/gateway=writer,dns:reports.internal=reader`.
 *
 * @returns the table, or a fault that names the position of the wrong entry and never its text
 */
export function parseRoles(text: string): RoleTable | { readonly fault: string } {
  const table = new Map<string, Role>();
  for (const [index, part] of text.split(",").entries()) {
    const groups = entry.exec(part.trim())?.groups;
    if (!groups) return { fault: `entry ${index + 1} is not like ${example}` };
    if (table.has(groups.identity!)) return { fault: `entry ${index + 1} names an identity again` };
    table.set(groups.identity!, groups.role as Role);
  }
  return table;
}

const example = `spiffe://petstore/gateway=writer or dns:reports.internal=reader (${roles.join(", ")})`;

/** Returns true when `role` includes `needed`. */
export function roleIncludes(role: Role, needed: Role): boolean {
  return roles.indexOf(role) >= roles.indexOf(needed);
}
