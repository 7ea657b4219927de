/** Entries as the service sends them. */
import type { InventoryItem as WireItem } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { fromWireStatus, type Item, type ListedItem } from "../proto/pet.ts";
import { InventoryError } from "./inventory-error.ts";

/** @throws InventoryError for an answer without an entry, or with a status that this client does not know */
export function toItem(item: WireItem | undefined): Item {
  const { removed: _removed, ...entry } = readItem(item);
  return entry;
}

/** Does the same for an entry of a list or of changes. */
export function toListedItem(item: WireItem): ListedItem {
  return readItem(item);
}

function readItem(item: WireItem | undefined): ListedItem {
  const status = item && fromWireStatus(item.status);
  if (!item || !status) {
    const message = "the service sent an entry that this client does not understand";
    throw new InventoryError("INTERNAL", message, { reason: "INTERNAL" });
  }
  return { ...item, status };
}
