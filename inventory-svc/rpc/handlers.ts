import { setTimeout } from "node:timers/promises";
import type { InventoryServiceServer } from "../../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Tracing } from "../../runtime/tracing.ts";
import type { GroupCommit } from "../stock/group-commit.ts";
import type { Changes, Position, StockStore } from "../stock/store.ts";
import { duplexStream, isWanted, type OnCall, serverStream, unary } from "./calls.ts";
import { notFound, settled } from "./outcomes.ts";
import { traced } from "./traced.ts";
import { updateStream } from "./update-stream.ts";
import { readQuantity, readStatus, toWireItem } from "./wire.ts";

/** Entries in one message: about 20 KiB, far below the 4 MiB that a gRPC client accepts. */
const batchSize = 1_000;

/** How often a watch looks for news. Changes come from all replicas, and only the database knows of all. */
const watchIntervalMs = 100;

const resetAnswer = { changed: [], removedPetIds: [], more: false, reset: true };

export interface HandlerDeps {
  readonly store: Pick<StockStore, "get" | "position" | "changesAfter" | "pages">;
  readonly commits: Pick<GroupCommit, "submit">;
  /** Aborted when the server is about to stop: streams that would run on end then. */
  readonly draining: AbortSignal;
  readonly onCall: OnCall;
  readonly tracing: Tracing;
}

/** The operations of `petstore.inventory.v1`, between the wire and the stock. */
export function inventoryHandlers({ store, commits, draining, onCall, tracing }: HandlerDeps): InventoryServiceServer {
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
          yield {
            ...position,
            changed: changes.rows.filter((row) => !row.removed).map(toWireItem),
            removedPetIds: changes.rows.filter((row) => row.removed).map((row) => row.petId),
            more,
            reset: false,
          };
        }
      },
      onCall,
    ),

    watchInventory: serverStream(async function* (position, gone) {
      const stopped = AbortSignal.any([gone, draining]);
      // The first message tells at once where the watch stands, also when nothing has changed.
      for (let isFirst = true; !stopped.aborted; isFirst = false) {
        const changes = await store.changesAfter(position, batchSize);
        if (changes.kind === "reset") return yield { ...resetAnswer, ...position };
        const hasNews = changes.rows.length > 0;
        ({ position } = changes);
        if (hasNews || isFirst) yield toAnswer(changes);
        if (!changes.more) await setTimeout(watchIntervalMs, undefined, { signal: stopped }).catch(() => {});
      }
    }, onCall),

    getInventoryItem: unary(async ({ petId }) => {
      const item = await store.get(petId);
      if (!item) throw notFound();
      return { item: toWireItem(item) };
    }, onCall),

    updateInventory: unary(async ({ petId, quantity, expectedRevision }, call) => {
      const change = { kind: "update", petId, quantity: readQuantity(quantity), expectedRevision } as const;
      return { item: toWireItem(settled(await commits.submit(tracing.part(change), () => isWanted(call)))) };
    }, onCall),

    applyUpdates: updateStream({ commits, draining, onCall, tracing }),

    createInventoryItem: unary(async ({ petId, quantity, status: wireStatus }, call) => {
      const petStatus = readStatus(wireStatus, "available");
      const change = { kind: "create", petId, quantity: readQuantity(quantity), status: petStatus } as const;
      return { item: toWireItem(settled(await commits.submit(tracing.part(change), () => isWanted(call)))) };
    }, onCall),

    removeInventoryItem: unary(async ({ petId }, call) => {
      const change = { kind: "remove", petId } as const;
      return { revision: settled(await commits.submit(tracing.part(change), () => isWanted(call))).revision };
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
