/** Converts answers with entries to what callers get. */
import { readBody, type SentEntry, withPetId } from "./exact-json.ts";
import type { InventoryList } from "./inventory-api.ts";
import type { Answer } from "./request-sender.ts";
import type { InventoryChanges, InventoryEntry, InventoryItem } from "./types.ts";

function etagOf({ headers }: Answer): string {
  return headers.get("etag") ?? "";
}

export function listOf(answer: Answer): InventoryList {
  const items = readBody(answer, (sent: SentEntry[]) => sent.map(withPetId<InventoryItem>));
  return Object.defineProperty(items, "etag", { value: etagOf(answer) }) as InventoryItem[] & { etag: string };
}

export function entryOf(answer: Answer): InventoryEntry {
  return { ...readBody(answer, withPetId<InventoryItem>), etag: etagOf(answer) };
}

export function changesOf(answer: Answer): InventoryChanges {
  return readBody(answer, ({ changed, removed, ...rest }: SentChanges) => ({
    ...rest,
    changed: changed.map(withPetId<InventoryEntry>),
    removed: removed.map(BigInt),
  }));
}

interface SentChanges {
  readonly etag: string;
  readonly changed: SentEntry[];
  readonly removed: (number | string)[];
}
