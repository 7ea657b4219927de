import { codeOf, isTakenBack, matchedRows, type RunTogether, type Statement } from "../../runtime/database/open.ts";
import { type AdjustmentRow, requestIdsOf, toAdjustment } from "./adjustments.ts";
import { type Applied, applyChanges, type Change } from "./changes.ts";
import type { Found } from "./row-cache.ts";
import { type Row, toStockRow } from "./rows.ts";
import type { WriteStatements } from "./statements.ts";

/** A write got no answer to its commit: whether it happened is not known. */
export class OutcomeUnknownError extends Error {
  constructor(cause: unknown) {
    super("the stock database did not say whether the change was written", { cause });
    this.name = "OutcomeUnknownError";
  }
}

/** The stock is not as it was expected to be: nothing has happened. */
export class HeadMovedError extends Error {
  constructor(cause: unknown) {
    super("others have changed the stock", { cause });
    this.name = "HeadMovedError";
  }
}

/** What `moveHead` fails with. */
const notNull = new Set(["ER_BAD_NULL_ERROR", "SQLITE_CONSTRAINT_NOTNULL"]);

/** What a COMMIT never fails with, so that it was not reached: classes of SQLSTATE, and what SQLite has for the last. */
const beforeCommit = /^(22...|23...|42...|SQLITE_ERROR)$/;

/**
 * The transaction of a write, from its beginning to its commit. On MySQL that takes two round trips: one that reads and
 * one that writes; where what it would read is `expected`, only the second. With `gather` there is one more at the
 * beginning, that only waits for its turn.
 *
 * The counter row is locked first. So writers queue there and nowhere else, revisions commit in their order, and
 * what was read under the lock still holds when it is written. What was expected holds too, because the first thing
 * that is written is the counter, and only if it is still at the revision to which that belongs.
 *
 * @param gather may add to `changes` once the turn has come
 * @throws HeadMovedError when the expectation is wrong; OutcomeUnknownError; after any other error nothing has happened
 */
export async function writeAll(
  statements: WriteStatements,
  changes: readonly Change[],
  nowMs: number,
  expected: Found | undefined,
  gather: (() => void) | undefined,
  run: RunTogether,
  begin: Statement,
  commit: Statement,
): Promise<{ readonly found: Found; readonly applied: Applied }> {
  const found = expected ?? (await find(statements, changes, gather, run, begin));
  const applied = applyChanges(found, changes);
  try {
    const writes = await run(
      ...(expected ? [begin] : []),
      statements.moveHead(found, applied.revision),
      ...statements.setEntries(applied.written),
      ...statements.addAdjustments(applied.adjusted, nowMs),
      commit,
    );
    if (matchedRows(writes[expected ? 1 : 0]) !== 1) throw new Error("stock_head has no counter");
  } catch (error) {
    if (expected && notNull.has(codeOf(error))) throw new HeadMovedError(error);
    if (isTakenBack(error) || beforeCommit.test((error as { sqlState?: string }).sqlState ?? codeOf(error)))
      throw error;
    throw new OutcomeUnknownError(error);
  }
  return { found, applied };
}

async function find(
  statements: WriteStatements,
  changes: readonly Change[],
  gather: (() => void) | undefined,
  run: RunTogether,
  begin: Statement,
): Promise<Found> {
  const lock = [begin, statements.lockHead];
  const reads = () => [
    statements.entries(new Set(changes.map((change) => change.petId))),
    ...statements.adjustments(requestIdsOf(changes)),
  ];
  const results: unknown[] = [];
  if (gather) {
    results.push(...(await run(...lock)));
    gather();
    results.push(...(await run(...reads())));
  } else {
    results.push(...(await run(...lock, ...reads())));
  }
  const [, heads, rows, adjustments = []] = results;
  const [head] = heads as { epoch: string; revision: bigint }[];
  if (!head) throw new Error("stock_head has no counter");
  return {
    ...head,
    rows: (rows as Row[]).map(toStockRow),
    adjustments: (adjustments as AdjustmentRow[]).map(toAdjustment),
  };
}
