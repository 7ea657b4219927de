/** Follows what changes, over as many streams as that takes. */
import { setTimeout } from "node:timers/promises";
import type { WatchInventoryResponse } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import type { Item, Position } from "../proto/pet.ts";
import { InventoryError, type StatusName } from "./inventory-error.ts";
import { toItem } from "./values.ts";

export type WatchEvent =
  | {
      readonly kind: "changes";
      /** Where the watch stands after this event. */
      readonly position: Position;
      /** Entries that were made or changed, in their latest state. */
      readonly changed: readonly Item[];
      /** petIds of entries that were removed. */
      readonly removed: readonly bigint[];
    }
  /** The position is not one of this stock (a backup was restored), or too old: list again. The last event. */
  | { readonly kind: "reset" };

export interface WatchOptions {
  /** Ends the watch, which then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Gets the error of every stream that fails, except one that ends the watch. The watch continues by itself. */
  readonly onBreak?: ((error: InventoryError) => void) | undefined;
}

const firstWaitMs = 100;
const maxWaitMs = 5_000;

/** Statuses after which another try would end the same way. */
const final: ReadonlySet<StatusName> = new Set([
  "INVALID_ARGUMENT",
  "PERMISSION_DENIED",
  "UNAUTHENTICATED",
  "UNIMPLEMENTED",
]);

/**
 * Gives the changes after a position. Each stream begins where the one before it broke.
 *
 * @throws InventoryError that another try would not mend, such as an entry that this client cannot read; or the reason
 *   of the signal
 */
export async function* follow(
  open: (from: Position) => AsyncIterable<WatchInventoryResponse>,
  from: Position,
  options: WatchOptions,
): AsyncGenerator<WatchEvent, void, undefined> {
  for await (const { epoch, revision, items, reset } of messages(open, from, options)) {
    if (reset) return yield { kind: "reset" };
    const [changed, removed] = [items.filter((item) => !item.removed), items.filter((item) => item.removed)];
    yield {
      kind: "changes",
      position: { epoch, revision },
      changed: changed.map(toItem),
      removed: removed.map(({ petId }) => petId),
    };
  }
}

async function* messages(
  open: (from: Position) => AsyncIterable<WatchInventoryResponse>,
  from: Position,
  { signal, onBreak }: WatchOptions,
): AsyncGenerator<WatchInventoryResponse, void, undefined> {
  let position = from;
  for (let waitMs = firstWaitMs; ; waitMs = Math.min(2 * waitMs, maxWaitMs)) {
    try {
      for await (const message of open(position)) {
        waitMs = firstWaitMs;
        position = { epoch: message.epoch, revision: message.revision };
        yield message;
      }
      // The stream ended: a service that stops ends its watches.
    } catch (error) {
      signal?.throwIfAborted(); // an end that the caller asked for is no break
      if (!(error instanceof InventoryError) || final.has(error.code)) throw error;
      onBreak?.(error);
    }
    // Many watches may have broken together, so they wait for different times.
    await setTimeout(waitMs * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {});
    signal?.throwIfAborted();
  }
}
