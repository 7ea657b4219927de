import { randomUUID } from "node:crypto";
import type { Knex } from "knex";
import {
  inTransaction,
  isTakenBack,
  maxAttempts,
  run,
  type Statement,
  statementOf,
} from "../../runtime/database/open.ts";
import type { Change, Outcome } from "./changes.ts";
import { maxPetId, minPetId, type StockItem, type StockRow } from "./item.ts";
import { LastState } from "./row-cache.ts";
import { columns, type Row, toStockRow } from "./rows.ts";
import { WriteStatements } from "./statements.ts";
import { HeadMovedError, OutcomeUnknownError, writeAll } from "./write-turn.ts";

/** The stock cannot be read or written now: nothing has happened. */
export class StockUnavailableError extends Error {
  constructor(cause: unknown) {
    super("the stock database is not available", { cause });
    this.name = "StockUnavailableError";
  }
}

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
  readonly #now: () => number;
  readonly #readHead: Statement;
  readonly #statements: WriteStatements;
  readonly #lastState = new LastState();
  #lastRevision = 0n;

  /** @param now Unix milliseconds */
  constructor(db: Knex, now: () => number = Date.now) {
    this.#db = db;
    this.#now = now;
    this.#readHead = statementOf(db("stock_head").where({ id: 1 }).select("epoch", "revision"));
    this.#statements = new WriteStatements(db);
  }

  /** Resolves when the database answers and the schema is there. */
  async ping(): Promise<void> {
    await this.position();
    await available(this.#db("stock_adjustments").where({ revision: 0 }).first("revision"));
  }

  /** The newest revision that was read or written here. */
  get lastRevision(): bigint {
    return this.#lastRevision;
  }

  /** The position after the last change of the stock. */
  async position(): Promise<Position> {
    const [position] = await available(run<Position>(this.#db, this.#readHead));
    this.#lastRevision = position!.revision;
    return position!;
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

  /** @returns the entries that there are of these, as they stand at one moment, by their petId */
  async getMany(petIds: readonly bigint[]): Promise<ReadonlyMap<bigint, StockItem>> {
    const rows = await available(
      this.#select()
        .whereIn("pet_id", petIds as never[])
        .where("removed", 0),
    );
    return new Map(rows.map((row) => [row.pet_id, toStockRow(row)]));
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
   * @param more gives further changes, which are applied behind the others; asked at most once, when the transaction's
   * turn has come, and only where others write too
   * @returns an outcome for each change, in order
   * @throws StockUnavailableError, OutcomeUnknownError
   */
  async write(changes: readonly Change[], more?: () => readonly Change[]): Promise<readonly Outcome[]> {
    if (changes.length === 0) return [];
    const all = [...changes];
    // Where others write, a transaction waits for theirs, and does not leave behind what has come meanwhile. But to know
    // when the wait is over takes a round trip, so not where little comes.
    let isWhole = more === undefined || changes.length === 1 || !this.#lastState.isShared;
    const gather = () => {
      isWhole = true;
      all.push(...more!());
    };
    for (let attempt = 1; ; attempt++) {
      const expected = attempt === 1 ? this.#lastState.expect(all) : undefined;
      let written: Awaited<ReturnType<typeof writeAll>>;
      try {
        written = await inTransaction(this.#db, (...transaction) =>
          writeAll(this.#statements, all, this.#now(), expected, isWhole ? undefined : gather, ...transaction),
        );
      } catch (error) {
        this.#lastState.forget();
        if (error instanceof OutcomeUnknownError) throw error;
        if (error instanceof HeadMovedError || (isTakenBack(error) && attempt < maxAttempts)) continue;
        throw new StockUnavailableError(error);
      }
      const { found, applied } = written;
      const left = expected ? applied.written : [...found.rows, ...applied.written];
      this.#lastState.learn(found, left, applied.revision);
      if (applied.revision > this.#lastRevision) this.#lastRevision = applied.revision;
      return applied.outcomes;
    }
  }

  /**
   * Forgets the adjustments that were made before a time, the oldest first: a bounded number of them, and only after a
   * revision. Touches no row that a write touches, and no harm is done when several do this at once.
   *
   * @returns the revision up to which they are forgotten; undefined when none is left that is so old
   */
  async forgetAdjustments(beforeMs: number, limit: number, after: bigint): Promise<bigint | undefined> {
    const remembered = () => this.#db("stock_adjustments").where("revision", ">", after as never);
    const oldest: { revision: bigint; made_at: bigint }[] = await available(
      remembered().orderBy("revision").limit(limit).select("revision", "made_at"),
    );
    const kept = oldest.findIndex(({ made_at }) => made_at >= BigInt(beforeMs));
    const last = (kept === -1 ? oldest : oldest.slice(0, kept)).at(-1)?.revision;
    if (last === undefined) return undefined;
    await available(
      remembered()
        .where("revision", "<=", last as never)
        .delete(),
    );
    return kept === -1 && oldest.length === limit ? last : undefined;
  }

  /**
   * Begins a new line of revisions, after the database was restored from a backup: positions that were told before may
   * not be true of it, and everyone who holds one lists anew.
   *
   * The counter jumps to the time in microseconds, where no line has ever been if clocks are right. So no revision is used
   * twice, and one that a caller knows from before, of an entry, can only be that of a state that the restored stock has.
   */
  async beginEpoch(): Promise<Position> {
    const jump = BigInt(this.#now()) * 1_000n;
    const revision = this.#db.raw("case when revision < ? then ? else revision end", [jump, jump] as never[]);
    await available(this.#db("stock_head").where({ id: 1 }).update({ epoch: randomUUID(), revision }));
    return await this.position();
  }

  #select(): Knex.QueryBuilder<Row, Row[]> {
    return this.#db<Row>("stock").select(columns) as never;
  }
}

async function available<T>(query: PromiseLike<T>): Promise<T> {
  try {
    return await query;
  } catch (error) {
    throw new StockUnavailableError(error);
  }
}
