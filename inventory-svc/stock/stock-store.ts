/** The stock as its database has it: reads at one position, and writes, which `write.ts` makes. */
import { randomUUID } from "node:crypto";
import type { Knex } from "knex";
import type { ChangeKind, Item, ListedItem, Position } from "../../proto/pet.ts";
import { readCurrent, type ServerRow, serverColumns } from "../../runtime/database/old-primary.ts";
import { clockMsSql, runStatement, type Statement, statementOf } from "../../runtime/database/statements.ts";
import { invariant } from "../../runtime/invariant.ts";
import { SharedRead } from "../../runtime/shared-read.ts";
import type { Change, Outcome } from "./change.ts";
import { readCurrentRows } from "./current-rows.ts";
import { ReadPlaces } from "./read-places.ts";
import { orUnavailable } from "./stock-errors.ts";
import { type EntryRow, entryColumns, fromEntryRow, ledgerTable } from "./stock-rows.ts";
import { type WriteRequest, WriteStatements, type Written, writeInTransaction } from "./write.ts";

/** A page of the changes after a position; `reset` when the position is below the floor, or not one of this stock. */
export type ChangesPage =
  | { readonly kind: "reset" }
  | {
      readonly kind: "changes";
      readonly position: Position;
      /** Rows that were removed by a revision up to this one are forgotten. */
      readonly floor: bigint;
      /** The latest state of each entry that changed, in the order of revisions; removed ones as tombstones. */
      readonly rows: readonly ListedItem[];
      /** True for a full page: there may be more, and only the last page's position is that of a whole state. */
      readonly more: boolean;
    };

/** What a read of the head found. */
interface HeadRead {
  readonly position: Position;
  readonly floor: bigint;
  /** Reads of pages that began after this read of the head. Callers that share this read can share those, too. */
  readonly pages: Map<string, Promise<ChangesPage>>;
}

/** Reads the stock, and writes it. The same on MySQL, MariaDB and SQLite. */
export class StockStore {
  readonly #db: Knex;
  readonly #readPosition: Statement;
  readonly #headReads = new SharedRead(() => this.#readHead());
  readonly #places = new ReadPlaces({ maxRunning: 3 });
  readonly #statements: WriteStatements;
  readonly #made = new Map<ChangeKind, number>();
  /** The latest position that was read or written here. */
  #last: Position = { epoch: "", revision: 0n };

  /** @param keepsHistory whether the ledger keeps every change, or only those that answer repeats */
  constructor(db: Knex, keepsHistory = true) {
    this.#db = db;
    const head = db("stock_head").where({ id: 1 });
    this.#readPosition = statementOf(head.select(serverColumns(db), "epoch", "revision", "floor"));
    this.#statements = new WriteStatements(db, keepsHistory);
  }

  /** Resolves when the database answers and has the schema. @throws StockUnavailableError */
  async ping(): Promise<void> {
    await this.position();
    await orUnavailable(this.#db(ledgerTable).where({ id: 0 }).first("id"));
    await orUnavailable(this.#db("stock_head").where({ id: 1 }).first("writes"));
  }

  /** The latest revision that was read or written here. */
  get lastRevision(): bigint {
    return this.#last.revision;
  }

  /** Changes that this process has made so far. */
  get changesByKind(): ReadonlyMap<ChangeKind, number> {
    return this.#made;
  }

  /**
   * Reads the position after the latest change of the stock. Callers that ask while it is being read share the next
   * read.
   *
   * @throws StockUnavailableError
   */
  async position(): Promise<Position> {
    return (await this.#headReads.next()).position;
  }

  /**
   * Reads what changed after a position. The rows, the position and the floor of a page come from one statement, so
   * from one state of the database. Callers that share the read of the head and have the same position share the page,
   * too.
   *
   * @param limit maximum rows
   * @throws StockUnavailableError
   */
  async changesAfter(asked: Position, limit: number): Promise<ChangesPage> {
    const { position, floor, pages } = await this.#headReads.next();
    if (position.epoch !== asked.epoch || asked.revision < floor) return { kind: "reset" };
    if (position.revision === asked.revision) return { kind: "changes", position, floor, rows: [], more: false };
    const key = `${limit} ${asked.revision}`;
    const page = pages.get(key) ?? this.#places.take(() => this.#readPage(asked, limit));
    pages.set(key, page);
    return await page;
  }

  async #readHead(): Promise<HeadRead> {
    const known = this.#last;
    const [row] = await this.#readCurrent(() =>
      runStatement<Position & { floor: bigint } & ServerRow>(this.#db, this.#readPosition),
    );
    const { epoch, revision, floor } = row!;
    this.#noteHead({ epoch, revision }, known);
    return { position: { epoch, revision }, floor, pages: new Map() };
  }

  /**
   * Takes note of a position of the database. A position behind the one known before the query proves that the server
   * lost revisions or never had them.
   */
  #noteHead({ epoch, revision }: Position, known: Position): void {
    const isBack = epoch === known.epoch && revision < known.revision;
    invariant(!isBack, "the revision of the stock never goes back within an epoch");
    if (epoch !== this.#last.epoch || revision > this.#last.revision) this.#last = { epoch, revision };
  }

  async #readPage({ epoch, revision }: Position, limit: number): Promise<ChangesPage> {
    const known = this.#last;
    const page = this.#select()
      .where("revision", ">", revision as never)
      .orderBy("revision")
      .limit(limit)
      .as("page");
    const query = this.#db("stock_head")
      .where("stock_head.id", 1)
      // The page is limited before the join: otherwise MySQL reads and sorts everything after the position.
      .leftJoin(page, this.#db.raw("1 = 1") as never)
      .orderBy("page.revision")
      .select(serverColumns(this.#db))
      .select(
        "stock_head.epoch",
        "stock_head.revision as head",
        "stock_head.floor",
        ...entryColumns.map((name) => `page.${name}`),
      );
    const rows: readonly (EntryRow & ServerRow & { epoch: string; head: bigint; floor: bigint })[] =
      await this.#readCurrent(() => query.clone());
    const { epoch: currentEpoch, head, floor } = rows[0]!;
    this.#noteHead({ epoch: currentEpoch, revision: head }, known);
    if (epoch !== currentEpoch || revision > head || revision < floor) return { kind: "reset" };
    const changed = rows[0]!.pet_id === null ? [] : rows.map(fromEntryRow);
    invariant(
      changed.every((row) => row.revision > revision && row.revision <= head),
      "changes are newer than the revision that was asked for, and not newer than the head",
    );
    const more = changed.length === limit;
    const reached = more ? changed.at(-1)!.revision : head;
    return { kind: "changes", position: { epoch, revision: reached }, floor, rows: changed, more };
  }

  /** Reads an entry. @returns undefined when there is none. @throws StockUnavailableError */
  async get(petId: bigint): Promise<Item | undefined> {
    const [row] = await this.#readRows((rows) => rows.where({ removed: 0, pet_id: petId as never }));
    return row;
  }

  /** Reads entries as they are at one moment. @returns those that exist, by petId. @throws StockUnavailableError */
  async getMany(petIds: readonly bigint[]): Promise<ReadonlyMap<bigint, Item>> {
    const rows = await this.#readRows((rows) => rows.where("removed", 0).whereIn("pet_id", petIds as never[]));
    return new Map(rows.map((row) => [row.petId, row]));
  }

  /**
   * Reads the rows after a petId, in the order of petId: entries, and tombstones between them. So a page costs the same
   * however many entries were removed.
   *
   * @param after undefined for the first page
   * @param limit maximum rows; a shorter page is the last
   * @throws StockUnavailableError
   */
  async rowsAfter(after: bigint | undefined, limit: number): Promise<readonly ListedItem[]> {
    return await this.#readRows((rows) => {
      return (after === undefined ? rows : rows.where("pet_id", ">", after as never)).limit(limit);
    });
  }

  /**
   * Writes the changes of these requests in one transaction, in order; see `writeInTransaction`.
   *
   * @throws StockUnavailableError, OutcomeUnknownError
   */
  async writeWanted(requests: readonly WriteRequest[]): Promise<Written> {
    const known = this.#last;
    const onLocked = (position: Position) => this.#noteHead(position, known);
    const { written, ledgerChanges, position } = await writeInTransaction(
      this.#db,
      this.#statements,
      requests,
      onLocked,
    );
    for (const { id, kind } of ledgerChanges) if (id > 0n) this.#made.set(kind, (this.#made.get(kind) ?? 0) + 1);
    if (position) this.#noteHead(position, known);
    return written;
  }

  /**
   * Writes changes of an operator in a transaction of their own, each decided alone.
   *
   * @throws StockUnavailableError, OutcomeUnknownError
   */
  async write(changes: readonly Change[]): Promise<readonly Outcome[]> {
    const origin = { actor: { kind: "operator" } } as const;
    const requests = changes.map((change) => ({ group: { changes: [change], origin }, isWanted: () => true }));
    return [...(await this.writeWanted(requests)).values()].flat();
  }

  /**
   * Begins a new epoch after the database was restored from a backup. Positions of the old epoch may not hold for the
   * restored stock, so every caller that has one must list the stock again.
   *
   * The head jumps to the database's time in microseconds, which no epoch reaches by counting. If it is past that time,
   * because the clock was wrong at an earlier restore, the time is added to it. In both cases the head moves further
   * than changes can have moved it since the backup was made, or since the previous restore. So no revision is
   * used twice, and a caller that knows an entry's revision from before the restore cannot mistake another state for
   * it. The exception: the database's clock is set back between two restores of one backup.
   *
   * @returns the position after it
   * @throws StockUnavailableError
   */
  async beginEpoch(): Promise<Position> {
    const jump = `${clockMsSql(this.#db)} * 1000`;
    const revision = this.#db.raw(`case when revision < ${jump} then ${jump} else revision + ${jump} end`);
    await orUnavailable(this.#db("stock_head").where({ id: 1 }).update({ epoch: randomUUID(), revision }));
    return await this.position();
  }

  /** Reads from the server that takes the writes: where an old primary has answered, it asks again elsewhere. */
  #readCurrent<R extends ServerRow>(read: () => PromiseLike<readonly R[]>): Promise<readonly R[]> {
    return orUnavailable(readCurrent(this.#db, read));
  }

  /** Reads rows in the order of petId. @param choose says which */
  async #readRows(choose: (rows: Knex.QueryBuilder) => Knex.QueryBuilder): Promise<readonly ListedItem[]> {
    const chosen = choose(this.#select()).orderBy("pet_id");
    const rows = await readCurrentRows<EntryRow>(this.#db, chosen, entryColumns, "pet_id");
    return rows.map(fromEntryRow);
  }

  #select(): Knex.QueryBuilder<EntryRow, EntryRow[]> {
    return this.#db<EntryRow>("stock").select(entryColumns) as never;
  }
}
