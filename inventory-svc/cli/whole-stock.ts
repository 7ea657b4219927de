/** Reads the whole stock as it was at one moment. */
import type { ListedItem, Position } from "../../proto/pet.ts";
import { OperatorError } from "../../runtime/operator-error.ts";
import { ListFeed } from "../stock/list-feed.ts";
import type { StockStore } from "../stock/stock-store.ts";

/**
 * Reads every entry, a page at a time. Pages are of different moments, so later changes are read at the end.
 *
 * @param onRead gets how many entries there are so far
 * @returns the entries in the order of petId
 * @throws StockUnavailableError; OperatorError when another epoch began meanwhile, as after a restore
 */
export async function readWholeStock(
  store: Pick<StockStore, "position" | "rowsAfter" | "changesAfter">,
  pageSize: number,
  onRead: (count: number) => void,
): Promise<readonly ListedItem[]> {
  const entries = new Map<bigint, ListedItem>();
  const take = (rows: readonly ListedItem[]) => {
    for (const row of rows) {
      if (row.removed) entries.delete(row.petId);
      else entries.set(row.petId, row);
    }
    onRead(entries.size);
  };
  let position!: Position; // of the first page, which comes before any row is read
  for await (const page of new ListFeed(store, pageSize).load(undefined)) {
    ({ position } = page);
    take(page.rows);
  }
  for (let more = true; more; ) {
    const changes = await store.changesAfter(position, pageSize);
    if (changes.kind === "reset")
      throw new OperatorError("another epoch of the stock began while it was read: try again");
    take(changes.rows);
    ({ position, more } = changes);
  }
  return [...entries.values()].sort((one, other) => (one.petId < other.petId ? -1 : 1));
}
