// The service with a fault in adjustments that are all or none: it makes those that it can.
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";

const { writeWanted } = StockStore.prototype;
StockStore.prototype.writeWanted = async function (requests) {
  for (const { group } of requests) Object.assign(group, { isAllOrNothing: false });
  return await writeWanted.call(this, requests);
};

await import("../../inventory-svc/main.ts");
