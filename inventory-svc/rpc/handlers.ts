import type { InventoryServiceServer } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Tracing } from "../../runtime/tracing.ts";
import { ChangeFeed } from "../stock/change-feed.ts";
import type { Change } from "../stock/changes.ts";
import type { GroupCommit } from "../stock/group-commit.ts";
import type { Changes, Position, StockStore } from "../stock/store.ts";
import { type AnyCall, duplexStream, isWanted, type OnCall, serverStream, unary } from "./calls.ts";
import { repeatable } from "./errors.ts";
import { notFound, settled } from "./outcomes.ts";
import { traced } from "./traced.ts";
import { updateStream } from "./update-stream.ts";
import { readDelta, readPetIds, readQuantity, readRequestId, readStatus, toWireItem } from "./wire.ts";

/** Entries in one message: about 20 KiB, far below the 4 MiB that a gRPC client accepts. */
const batchSize = 1_000;

const resetAnswer = { changed: [], removedPetIds: [], more: false, reset: true };

export interface HandlerDeps {
  readonly store: Pick<StockStore, "get" | "getMany" | "position" | "changesAfter" | "pages">;
  readonly commits: Pick<GroupCommit, "submit">;
  /** Aborted when the server is about to stop: streams that would run on end then. */
  readonly draining: AbortSignal;
  readonly onCall: OnCall;
  readonly tracing: Tracing;
}

/** The operations of `petstore.inventory.v1`, between the wire and the stock. */
export function inventoryHandlers({ store, commits, draining, onCall, tracing }: HandlerDeps): InventoryServiceServer {
  const commit = async (change: Change, call: AnyCall) =>
    settled(change, await commits.submit(tracing.part(change), () => isWanted(call)));

  const feed = new ChangeFeed(async (from) => {
    const changes = await store.changesAfter(from, batchSize);
    return changes.kind === "reset" ? changes : { ...changes, answer: toAnswer(changes) };
  });

  const handlers: InventoryServiceServer = {
    listInventory: serverStream(async function* () {
      const position = await store.position();
      yield { items: [], ...position };
      for await (const page of store.pages(batchSize)) yield { items: page.map(toWireItem), ...position };
    }, onCall),

    checkInventory: duplexStream(
      draining,
      async function* ({ traceparent, ...asked }) {
        let position: Position = asked;
        for (let more = true; more; ) {
          const changes = await tracing.serve("CheckInventory", traceparent, () =>
            store.changesAfter(position, batchSize),
          );
          if (changes.kind === "reset") return yield { ...resetAnswer, ...position };
          ({ position, more } = changes);
          yield toAnswer(changes);
        }
      },
      onCall,
    ),

    watchInventory: serverStream(async function* (from, gone) {
      let position: Position = from;
      for await (const changes of feed.follow(from, AbortSignal.any([gone, draining]))) {
        if (changes.kind === "reset") return yield { ...resetAnswer, ...position };
        ({ position } = changes);
        yield changes.answer;
      }
    }, onCall),

    getInventoryItem: unary(async ({ petId }) => {
      const item = await store.get(petId);
      if (!item) throw notFound(petId);
      return { item: toWireItem(item) };
    }, onCall),

    batchGetInventoryItems: unary(async (request) => {
      const petIds = readPetIds(request.petIds);
      const found = await store.getMany(petIds);
      return {
        items: petIds.flatMap((petId) => found.get(petId) ?? []).map(toWireItem),
        missingPetIds: petIds.filter((petId) => !found.has(petId)),
      };
    }, onCall),

    updateInventory: unary(async ({ petId, quantity, expectedRevision }, call) => {
      const change = { kind: "update", petId, quantity: readQuantity(quantity), expectedRevision } as const;
      return { item: toWireItem((await commit(change, call)).item) };
    }, onCall),

    applyUpdates: updateStream({ commits, draining, onCall, tracing }),

    adjustInventory: unary(async ({ petId, delta, requestId }, call) => {
      const change = { kind: "adjust", petId, delta: readDelta(delta), requestId: readRequestId(requestId) } as const;
      const { kind, item } = await repeatable(commit(change, call));
      return { item: toWireItem(item), replayed: kind === "replayed" };
    }, onCall),

    setStatus: unary(async ({ petId, status, expectedRevision }, call) => {
      const change = { kind: "update", petId, status: readStatus(status), expectedRevision } as const;
      return { item: toWireItem((await commit(change, call)).item) };
    }, onCall),

    createInventoryItem: unary(async ({ petId, quantity, status: wireStatus }, call) => {
      const status = readStatus(wireStatus, "available");
      const change = { kind: "create", petId, quantity: readQuantity(quantity), status } as const;
      return { item: toWireItem((await commit(change, call)).item) };
    }, onCall),

    removeInventoryItem: unary(async ({ petId }, call) => {
      const change = { kind: "remove", petId } as const;
      return { revision: (await commit(change, call)).item.revision };
    }, onCall),
  };
  return tracing.isOn ? traced(handlers, tracing) : handlers;
}

function toAnswer({ position, rows, more }: Extract<Changes, { kind: "changes" }>) {
  return {
    ...position,
    changed: rows.filter((row) => !row.removed).map(toWireItem),
    removedPetIds: rows.filter((row) => row.removed).map((row) => row.petId),
    more,
    reset: false,
  };
}
