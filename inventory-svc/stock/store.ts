import { randomUUID } from "node:crypto";
import type { Knex } from "knex";
import { inTransaction, type RunTogether } from "../../runtime/database.ts";
import { applyChanges, type Change, type Outcome } from "./changes.ts";
import { maxPetId, minPetId, type PetStatus, type StockItem, type StockRow } from "./item.ts";

/** The stock cannot be read or written now. Whether a write that met this happened is not known. */
export class StockUnavailableError extends Error {
  constructor(cause: unknown) {
    super("the stock database is not available", { cause });
    this.name = "StockUnavailableError";
  }
}

interface Row {
  pet_id: bigint;
  quantity: number | bigint;
  status: string;
  revision: bigint;
  removed: number | bigint;
}

const columns = ["pet_id", "quantity", "status", "revision", "removed"] as const;

/** Knex writes an insert of many rows for SQLite as a compound SELECT, which may have 500 terms. */
const maxRowsPerInsert = 500;

/** A transaction that lost against another one is tried again so many times; none of it has happened. */
const maxAttempts = 4;

const retryable = new Set([
  "ER_LOCK_DEADLOCK",
  "ER_LOCK_WAIT_TIMEOUT",
  "ER_CHECKREAD",
  "SQLITE_BUSY",
  "SQLITE_BUSY_SNAPSHOT",
]);

/** A place in the history of the stock: everything up to `revision` of `epoch`. */
export interface Position {
  /** Names a line of revisions; a restored database begins a new one. */
  readonly epoch: string;
  readonly revision: bigint;
}

/** What follows a position. */
export type Changes =
  | { readonly kind: "reset" }
  | {
      readonly kind: "changes";
      readonly position: Position;
      /** The last state of each entry that changed, in the order of revisions; removed ones as tombstones. */
      readonly rows: readonly StockRow[];
      /** The page is full, so there may be more; the position is that of a whole state only at the end. */
      readonly more: boolean;
    };

/** All queries on the stock. Works the same on MySQL, MariaDB and SQLite. */
export class StockStore {
  readonly #db: Knex;
  #lastRevision = 0n;

  constructor(db: Knex) {
    this.#db = db;
  }

  /** Resolves when the database answers and the schema is there. */
  async ping(): Promise<void> {
    await this.position();
  }

  /** The newest revision that was read or written here. */
  get lastRevision(): bigint {
    return this.#lastRevision;
  }

  /** The position after the last change of the stock. */
  async position(): Promise<Position> {
    const position: Position = await available(this.#db("stock_head").where({ id: 1 }).first("epoch", "revision"));
    this.#lastRevision = position.revision;
    return position;
  }

  /**
   * What changed after a position. What is told comes from one statement, so from one state of the database: the
   * position that it gives is exact.
   *
   * @param limit rows at the most
   */
  async changesAfter({ epoch, revision }: Position, limit: number): Promise<Changes> {
    // Mostly nothing has changed, and one row says so.
    const position = await this.position();
    if (position.epoch === epoch && position.revision === revision) {
      return { kind: "changes", position, rows: [], more: false };
    }
    const page = this.#select()
      .where("revision", ">", revision as never)
      .orderBy("revision")
      .limit(limit)
      .as("page");
    const rows: (Row & { epoch: string; head: bigint })[] = await available(
      this.#db("stock_head")
        .where("stock_head.id", 1)
        // Limited before it is joined: MySQL would read and sort everything after the position to give one page of it.
        .leftJoin(page, this.#db.raw("1 = 1") as never)
        .orderBy("page.revision")
        .select("stock_head.epoch", "stock_head.revision as head", ...columns.map((name) => `page.${name}`)),
    );
    const { epoch: currentEpoch, head } = rows[0]!;
    if (epoch !== currentEpoch || revision > head) return { kind: "reset" };
    const changed = rows[0]!.pet_id === null ? [] : rows.map(toStockRow);
    const more = changed.length === limit;
    const reached = more ? changed.at(-1)!.revision : head;
    return { kind: "changes", position: { epoch, revision: reached }, rows: changed, more };
  }

  /** @returns the entry, or undefined when there is none */
  async get(petId: bigint): Promise<StockItem | undefined> {
    const [row] = await available(
      this.#select()
        .where("pet_id", petId as never)
        .where("removed", 0),
    );
    return row && toStockRow(row);
  }

  /**
   * Every entry in the order of petId, read page by page as the reader takes them. Each page is as it stands when
   * it is read.
   */
  async *pages(pageSize: number): AsyncGenerator<StockItem[]> {
    let from = minPetId;
    for (;;) {
      const page = await available(
        this.#select()
          .where("pet_id", ">=", from as never)
          .where("removed", 0)
          .orderBy("pet_id")
          .limit(pageSize),
      );
      if (page.length > 0) yield page.map(toStockRow);
      const last = page.at(-1)?.pet_id ?? maxPetId;
      if (page.length < pageSize || last === maxPetId) return;
      from = last + 1n;
    }
  }

  /**
   * Applies the changes in one transaction, in order, and resolves once they are durable.
   *
   * The counter row is locked first. So writers queue there and nowhere else, revisions commit in their order, and
   * what was read under the lock still holds when it is written.
   * @returns an outcome for each change, in order
   * @throws StockUnavailableError
   */
  async write(changes: readonly Change[]): Promise<readonly Outcome[]> {
    for (let attempt = 1; ; attempt++) {
      try {
        const outcomes = await inTransaction(this.#db, (...transaction) => writeAll(this.#db, changes, ...transaction));
        for (const outcome of outcomes) {
          if (outcome.kind === "done" && outcome.item.revision > this.#lastRevision) {
            this.#lastRevision = outcome.item.revision;
          }
        }
        return outcomes;
      } catch (error) {
        const { code } = error as { code?: string };
        if (attempt === maxAttempts || !retryable.has(code ?? "")) throw new StockUnavailableError(error);
      }
    }
  }

  /**
   * Begins a new line of revisions, after the database was restored from a backup: positions that were told before may
   * not be true of it, and everyone who holds one lists anew.
   */
  async beginEpoch(): Promise<Position> {
    await available(this.#db("stock_head").where({ id: 1 }).update({ epoch: randomUUID() }));
    return await this.position();
  }

  #select(): Knex.QueryBuilder<Row, Row[]> {
    return this.#db<Row>("stock").select(columns) as never;
  }
}

async function writeAll(
  db: Knex,
  changes: readonly Change[],
  run: RunTogether,
  begin: Knex.Raw,
  commit: Knex.Raw,
): Promise<readonly Outcome[]> {
  const petIds = [...new Set(changes.map((change) => change.petId))] as never[];
  const [, heads, rows] = await run(
    begin,
    db("stock_head").where({ id: 1 }).select("revision").forUpdate(), // SQLite has the lock since the beginning
    db("stock").select(columns).whereIn("pet_id", petIds),
  );
  const [{ revision }] = heads as [{ revision: bigint }];
  const applied = applyChanges((rows as Row[]).map(toStockRow), changes, revision);
  const writes: Knex.QueryBuilder[] = [];
  for (let i = 0; i < applied.written.length; i += maxRowsPerInsert) {
    const written = applied.written.slice(i, i + maxRowsPerInsert).map(toRow);
    writes.push(db("stock").insert(written).onConflict("pet_id").merge());
  }
  if (writes.length > 0)
    writes.push(
      db("stock_head")
        .where({ id: 1 })
        .update({ revision: applied.revision as never }),
    );
  await run(...writes, commit);
  return applied.outcomes;
}

async function available<T>(query: PromiseLike<T>): Promise<T> {
  try {
    return await query;
  } catch (error) {
    throw new StockUnavailableError(error);
  }
}

function toStockRow(row: Row): StockRow {
  return {
    petId: row.pet_id,
    quantity: Number(row.quantity),
    status: row.status as PetStatus,
    revision: row.revision,
    removed: Boolean(Number(row.removed)),
  };
}

function toRow(row: StockRow) {
  return {
    pet_id: row.petId,
    quantity: row.quantity,
    status: row.status,
    revision: row.revision,
    removed: row.removed ? 1 : 0,
  };
}
