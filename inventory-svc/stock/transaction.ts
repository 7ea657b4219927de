import type { Knex } from "knex";
import type { RunTogether } from "../../runtime/database.ts";
import { requestIdsOf, selectAdjustments, toAdjustment, toAdjustmentRow } from "./adjustments.ts";
import { applyChanges, type Change, type Outcome } from "./changes.ts";
import { columns, type Row, toRow, toStockRow } from "./rows.ts";

/** A write got no answer to its commit: whether it happened is not known. */
export class OutcomeUnknownError extends Error {
  constructor(cause: unknown) {
    super("the stock database did not say whether the change was written", { cause });
    this.name = "OutcomeUnknownError";
  }
}

/** Knex writes an insert of many rows for SQLite as a compound SELECT, which may have 500 terms. */
const maxRowsPerInsert = 500;

const retryable = new Set([
  "ER_LOCK_DEADLOCK",
  "ER_LOCK_WAIT_TIMEOUT",
  "ER_CHECKREAD",
  "SQLITE_BUSY",
  "SQLITE_BUSY_SNAPSHOT",
]);

/**
 * The transaction of a write, from its beginning to its commit: two round trips on MySQL.
 *
 * The counter row is locked first. So writers queue there and nowhere else, revisions commit in their order, and
 * what was read under the lock still holds when it is written.
 *
 * @throws OutcomeUnknownError; after any other error nothing has happened
 */
export async function writeAll(
  db: Knex,
  changes: readonly Change[],
  nowMs: number,
  run: RunTogether,
  begin: Knex.Raw,
  commit: Knex.Raw,
): Promise<readonly Outcome[]> {
  const petIds = [...new Set(changes.map((change) => change.petId))] as never[];
  const requestIds = requestIdsOf(changes);
  const [, heads, rows, adjustments = []] = await run(
    begin,
    db("stock_head").where({ id: 1 }).select("revision").forUpdate(), // SQLite has the lock since the beginning
    db("stock").select(columns).whereIn("pet_id", petIds),
    ...(requestIds.length > 0 ? [selectAdjustments(db, requestIds)] : []),
  );
  const [{ revision }] = heads as [{ revision: bigint }];
  const standing = {
    rows: (rows as Row[]).map(toStockRow),
    adjustments: (adjustments as unknown[]).map(toAdjustment),
    revision,
  };
  const applied = applyChanges(standing, changes);
  const writes: Knex.QueryBuilder[] = [];
  for (const written of chunks(applied.written, maxRowsPerInsert)) {
    writes.push(db("stock").insert(written.map(toRow)).onConflict("pet_id").merge());
  }
  for (const made of chunks(applied.adjusted, maxRowsPerInsert)) {
    writes.push(db("stock_adjustments").insert(made.map((each) => toAdjustmentRow(each, nowMs))));
  }
  if (writes.length > 0)
    writes.push(
      db("stock_head")
        .where({ id: 1 })
        .update({ revision: applied.revision as never }),
    );
  try {
    await run(...writes, commit);
  } catch (error) {
    throw isLostRace(error) ? error : new OutcomeUnknownError(error);
  }
  return applied.outcomes;
}

/** True for the error of a transaction that lost against another one: the database has taken all of it back. */
export function isLostRace(error: unknown): boolean {
  return retryable.has((error as { code?: string }).code ?? "");
}

function chunks<T>(values: readonly T[], size: number): T[][] {
  const result: T[][] = [];
  for (let i = 0; i < values.length; i += size) result.push(values.slice(i, i + size));
  return result;
}
