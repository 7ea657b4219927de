/** The operations of `petstore.inventory.v1`, between the wire and the stock. */
import type { ServerUnaryCall } from "@grpc/grpc-js";
import type {
  InventoryServiceServer,
  InventoryItem as WireItem,
} from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { ListedItem, Position } from "../../proto/pet.ts";
import { contextOfCaller, inSpan, serverSpan } from "../../runtime/spans.ts";
import type { Actor, Change } from "../stock/change.ts";
import type { ChangeFeed } from "../stock/change-feed.ts";
import type { GroupCommit } from "../stock/group-commit.ts";
import type { ListFeed } from "../stock/list-feed.ts";
import { ReadPlaces } from "../stock/read-places.ts";
import type { StockHistory } from "../stock/stock-history.ts";
import type { StockStore } from "../stock/stock-store.ts";
import { allAppliedOrThrow, appliedOrThrow, applyChanges, notFound } from "./apply-changes.ts";
import { readHistoryLimit, toWirePastChange } from "./history-wire.ts";
import { asRetryable, RpcError } from "./rpc-error.ts";
import { certificateNames, type OnCall, questionStreamHandler, serverStream, unary, wantedBy } from "./served-calls.ts";
import {
  entriesPerMessage,
  readAdjustment,
  readAdjustments,
  readPetIds,
  readQuantity,
  readReason,
  readStatus,
  readUpdate,
  toWireItem,
} from "./wire.ts";

export interface HandlerDeps {
  readonly store: Pick<StockStore, "get" | "getMany" | "changesAfter">;
  readonly history: Pick<StockHistory, "before" | "has">;
  /** Whether changes of the past may be read. */
  readonly keepsHistory: boolean;
  /** Finds the actor of a call by the names in the certificate. */
  readonly actorOf: (certificateNames: string | undefined) => Actor;
  readonly commits: Pick<GroupCommit, "submit">;
  readonly feed: Pick<ChangeFeed, "follow">;
  readonly lists: Pick<ListFeed, "load">;
  /** Aborted when the server is about to stop: streams without an end of their own end then. */
  readonly draining: AbortSignal;
  readonly onCall: OnCall;
}

export function inventoryHandlers(deps: HandlerDeps): InventoryServiceServer {
  const { store, history, keepsHistory, commits, feed, lists, draining, actorOf, onCall } = deps;
  const places = new ReadPlaces({ maxRunning: 3 });
  const originOf = (call: ServerUnaryCall<unknown, unknown>) => ({ actor: actorOf(certificateNames(call)) });
  const commit = async (change: Change, call: ServerUnaryCall<unknown, unknown>) => {
    const [outcome] = await commits.submit({ changes: [change], origin: originOf(call) }, wantedBy(call));
    return appliedOrThrow(change, outcome!);
  };

  return {
    listInventory: serverStream(async function* ({ afterPetId }) {
      for await (const { position, rows } of lists.load(afterPetId)) yield { ...position, items: wireItemsOf(rows) };
    }, onCall),

    checkInventory: questionStreamHandler(
      draining,
      () =>
        async function* ({ traceparent, ...asked }) {
          let position: Position = asked;
          for (let more = true; more; ) {
            const page = await inSpan("CheckInventory", serverSpan, contextOfCaller(traceparent), () =>
              store.changesAfter(position, entriesPerMessage),
            );
            if (page.kind === "reset") return yield { ...position, items: [], more: false, reset: true, floor: 0n };
            ({ position, more } = page);
            yield { ...position, items: wireItemsOf(page.rows), more, reset: false, floor: page.floor };
          }
        },
      onCall,
    ),

    watchInventory: serverStream(async function* (from, gone) {
      let position: Position = from;
      for await (const page of feed.follow(from, AbortSignal.any([gone, draining]))) {
        if (page.kind === "reset") return yield { ...position, items: [], reset: true };
        ({ position } = page);
        yield { ...position, items: wireItemsOf(page.rows), reset: false };
      }
    }, onCall),

    getInventoryItem: unary(async ({ petId }) => {
      const item = await places.take(() => store.get(petId));
      if (!item) throw notFound(petId);
      return { item: toWireItem(item) };
    }, onCall),

    batchGetInventoryItems: unary(async (request) => {
      const petIds = readPetIds(request.petIds);
      const found = await places.take(() => store.getMany(petIds));
      return {
        items: petIds.flatMap((petId) => found.get(petId) ?? []).map(toWireItem),
        missingPetIds: petIds.filter((petId) => !found.has(petId)),
      };
    }, onCall),

    updateInventory: unary(async (request, call) => {
      const change = readUpdate(request);
      const { kind, item } = await (change.once ? asRetryable(commit(change, call)) : commit(change, call));
      return { item: toWireItem(item), replayed: kind === "replayed" };
    }, onCall),

    applyChanges: applyChanges(deps),

    adjustInventory: unary(async (request, call) => {
      const { kind, item } = await asRetryable(commit(readAdjustment({ ...request, expectedRevisions: [] }), call));
      return { item: toWireItem(item), replayed: kind === "replayed" };
    }, onCall),

    batchAdjustInventory: unary(async (request, call) => {
      const group = readAdjustments(request, originOf(call));
      const applied = allAppliedOrThrow(group, await asRetryable(commits.submit(group, wantedBy(call))));
      return { items: applied.map(({ item }) => toWireItem(item)), replayed: applied[0]!.kind === "replayed" };
    }, onCall),

    setStatus: unary(async ({ petId, status, expectedRevision, reason }, call) => {
      const expectedRevisions = expectedRevision === undefined ? undefined : [expectedRevision];
      const set = { kind: "update", petId, status: readStatus(status), expectedRevisions } as const;
      const change = { ...set, reason: readReason(reason) };
      return { item: toWireItem((await commit(change, call)).item) };
    }, onCall),

    createInventoryItem: unary(async ({ quantity, status, reason, ...entry }, call) => {
      const read = { quantity: readQuantity(quantity), status: readStatus(status, "available") };
      const change = { kind: "create", ...entry, ...read, reason: readReason(reason) } as const;
      return { item: toWireItem((await commit(change, call)).item) };
    }, onCall),

    removeInventoryItem: unary(async ({ petId, reason }, call) => {
      const change = { kind: "remove", petId, reason: readReason(reason) } as const;
      return { revision: (await commit(change, call)).item.revision };
    }, onCall),

    listChanges: unary(async (request) => {
      const { petId, beforeRevision } = request;
      if (!keepsHistory) throw new RpcError("HISTORY_OFF", "this service keeps no history (INVENTORY_HISTORY_DAYS=0)");
      const changes = await history.before(beforeRevision, petId, readHistoryLimit(request));
      const isKnown = petId === undefined || changes.length > 0 || (await history.has(petId));
      if (!isKnown) throw notFound(petId);
      return { changes: changes.map(toWirePastChange) };
    }, onCall),
  };
}

/** Items by the rows that they were made of, because many streams send the same rows. */
const wireItems = new WeakMap<readonly ListedItem[], readonly WireItem[]>();

function wireItemsOf(rows: readonly ListedItem[]): WireItem[] {
  let items = wireItems.get(rows);
  if (!items) {
    items = rows.map(toWireItem);
    wireItems.set(rows, items);
  }
  return items as WireItem[]; // the type of messages is not readonly
}
