/** The client of inventory-svc for callers in TypeScript and JavaScript. */
import "../runtime/node-version.ts";

export type { ChangeKind, Item, ListedItem, PetStatus, Position } from "../proto/pet.ts";
export type { Changed, ChangeOutcome, ChangeRequest, IdempotencyKey, QuantityChange } from "./change-requests.ts";
export type { ChangeCaller } from "./change-sender.ts";
export type { ChannelTls, InventoryChannelOptions } from "./channel.ts";
export type { CheckOptions, StockChanges } from "./checks.ts";
export { createInventoryClient } from "./client.ts";
export type { CallOptions } from "./grpc-calls.ts";
export type {
  Adjusted,
  AdjustedMany,
  Adjustment,
  Found,
  InventoryClient,
  InventoryClientOptions,
  ListOptions,
  Page,
} from "./interface.ts";
export { InventoryError, type StatusName } from "./inventory-error.ts";
export type { EntryThen, HistoryQuestion, PastActor, PastChange } from "./past-changes.ts";
export type { WatchEvent, WatchOptions } from "./watch.ts";
