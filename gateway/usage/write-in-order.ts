import type { Knex } from "knex";
import { retried } from "../../runtime/database/open.ts";

/**
 * Writes all items in one transaction, or none of them. Replicas that write the same rows in the same order wait for
 * each other, and never deadlock.
 *
 * @param keyOf tells the row of an item
 */
export async function writeInOrder<T>(
  db: Knex,
  items: readonly T[],
  keyOf: (item: T) => string,
  write: (trx: Knex.Transaction, item: T) => PromiseLike<unknown>,
): Promise<void> {
  if (items.length === 0) return;
  const ordered = items.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
  await retried(db, () =>
    db.transaction(async (trx) => {
      for (const item of ordered) await write(trx, item);
    }),
  );
}
