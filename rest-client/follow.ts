/** Follows the stock: the whole of it first, then every difference. */
import { InventoryApiError } from "./inventory-api-error.ts";
import { pause } from "./request-sender.ts";
import type { InventoryChanges, InventoryItem } from "./types.ts";

/** The whole stock: the first event, and again whenever its differences are no longer known. */
export interface StockEvent {
  readonly type: "stock";
  readonly etag: string;
  readonly items: readonly InventoryItem[];
}

/** What has changed since the event before; applied to that stock it gives the stock of `etag`. */
export interface ChangesEvent extends InventoryChanges {
  readonly type: "changes";
}

export type FollowEvent = StockEvent | ChangesEvent;

export interface FollowedStock {
  /** The whole stock. */
  readonly list: () => Promise<readonly InventoryItem[] & { readonly etag: string }>;
  /** What has changed since a tag. While nothing has, the answer waits for at most `waitSeconds`. */
  readonly changes: (since: string, waitSeconds: number) => Promise<InventoryChanges>;
}

/** Less than the 100 s for which proxies wait. */
const waitSeconds = 90;
/** An answer that comes sooner was not held back. */
const minHeldMs = 1_000;
const maxIdlePauseMs = 30_000;

/**
 * Gives every difference once and in order: each question begins where the latest answer ended, so an answer that was
 * lost is asked for again. Questions that bring nothing new, and whose answers were not held back, become rarer.
 */
export async function* followStock(
  { list, changes }: FollowedStock,
  signal: AbortSignal | undefined,
): AsyncGenerator<FollowEvent, never, undefined> {
  let since: string | undefined;
  for (let pauseMs = minHeldMs; ; ) {
    if (since === undefined) {
      const items = await list();
      since = items.etag;
      yield { type: "stock", etag: since, items };
    }
    const askedMs = performance.now();
    const difference: InventoryChanges | undefined = await changes(since, waitSeconds).catch(endOfDifferences);
    const wasHeld = performance.now() - askedMs >= minHeldMs;
    const hasChanges = difference !== undefined && difference.changed.length + difference.removed.length > 0;
    const isNew = hasChanges && difference.etag !== since;
    since = difference?.etag;
    if (hasChanges) yield { type: "changes", ...difference };
    if (isNew) {
      pauseMs = minHeldMs;
    } else if (!wasHeld) {
      await pause(pauseMs * (0.5 + Math.random() / 2), signal);
      pauseMs = Math.min(2 * pauseMs, maxIdlePauseMs);
    }
  }
}

/** @throws the error, unless it says that the differences are no longer known */
function endOfDifferences(error: unknown): undefined {
  if (error instanceof InventoryApiError && error.code === "changes_unavailable") return;
  throw error;
}
