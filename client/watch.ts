import { setTimeout } from "node:timers/promises";
import type { WatchInventoryResponse } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { InventoryError, type StatusName } from "./errors.ts";
import { type Item, type Position, toItem } from "./item.ts";

export type WatchEvent =
  | {
      readonly kind: "changes";
      /** Where the watch stands after this event. */
      readonly position: Position;
      /** Entries that were made or changed. Of changes that follow each other closely only the last is told. */
      readonly changed: readonly Item[];
      /** petIds of entries that were removed. */
      readonly removed: readonly bigint[];
    }
  /** The position is not one of this stock any more (a backup was restored): list anew. The last event. */
  | { readonly kind: "reset" };

export interface WatchOptions {
  /** Ends the watch, which then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Told of every break. The watch goes on by itself. */
  readonly onBreak?: ((error: InventoryError) => void) | undefined;
}

const firstWaitMs = 100;
const maxWaitMs = 5_000;

/** After these another try would end the same way. */
const final: ReadonlySet<StatusName> = new Set([
  "INVALID_ARGUMENT",
  "PERMISSION_DENIED",
  "UNAUTHENTICATED",
  "UNIMPLEMENTED",
]);

/**
 * Changes after a position, over as many streams as it takes: each begins where the one before it broke.
 *
 * @throws InventoryError that another try would not mend, an entry that this client cannot read among them; or the
 *   reason of the signal
 */
export async function* follow(
  open: (from: Position) => AsyncIterable<WatchInventoryResponse>,
  from: Position,
  options: WatchOptions,
): AsyncGenerator<WatchEvent, void, undefined> {
  for await (const { epoch, revision, changed, removedPetIds, reset } of messages(open, from, options)) {
    if (reset) return yield { kind: "reset" };
    yield { kind: "changes", position: { epoch, revision }, changed: changed.map(toItem), removed: removedPetIds };
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
      // A service that stops ends its watches.
    } catch (error) {
      signal?.throwIfAborted(); // an end that was asked for is no break
      if (!(error instanceof InventoryError) || final.has(error.code)) throw error;
      onBreak?.(error);
    }
    // Not all at once: many watches may have broken together.
    await setTimeout(waitMs * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {});
    signal?.throwIfAborted();
  }
}
