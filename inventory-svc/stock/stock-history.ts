/** Reads the ledger: the changes of the past. */
import type { Knex } from "knex";
import { isSqlite } from "../../runtime/database/open.ts";
import { readCurrentRows } from "./current-rows.ts";
import {
  type HistoryChange,
  type HistoryRow,
  historyColumns,
  ledgerPetIndex,
  ledgerTable,
  toHistoryChange,
} from "./stock-rows.ts";

/** The changes of the stock, as far as they are kept. */
export class StockHistory {
  readonly #db: Knex;
  /** The table with its index of petIds: left to themselves, databases read all changes, or all of the entry. */
  readonly #byPetId: Knex.Raw;

  constructor(db: Knex) {
    this.#db = db;
    this.#byPetId = db.raw(isSqlite(db) ? "?? indexed by ??" : "?? force index (??)", [ledgerTable, ledgerPetIndex]);
  }

  /**
   * Reads changes of the past, the newest first.
   *
   * @param revision only what was before it; undefined for the newest
   * @param petId undefined for the changes of all entries
   * @param limit maximum changes
   * @throws StockUnavailableError
   */
  async before(
    revision: bigint | undefined,
    petId: bigint | undefined,
    limit: number,
  ): Promise<readonly HistoryChange[]> {
    const source = petId === undefined ? ledgerTable : (this.#byPetId as never);
    const made = this.#db(source).select(historyColumns).where("id", ">", 0).orderBy("id", "desc").limit(limit);
    if (petId !== undefined) made.where("pet_id", petId as never);
    if (revision !== undefined) made.where("id", "<", revision as never);
    const rows = await readCurrentRows<HistoryRow>(this.#db, made, historyColumns, "id");
    return rows.sort((a, b) => Number(b.id - a.id)).map(toHistoryChange);
  }
}
