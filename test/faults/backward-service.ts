// The service with a fault in its checks: where an entry has the quantity 13, it tells of an older stock.
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";

const { changesAfter } = StockStore.prototype;
StockStore.prototype.changesAfter = async function (asked, limit) {
  const page = await changesAfter.call(this, asked, limit);
  if (page.kind === "reset" || page.rows.every(({ quantity }) => quantity !== 13)) return page;
  return { ...page, position: { ...asked, revision: asked.revision - 1n }, rows: [] };
};

await import("../../inventory-svc/main.ts");
