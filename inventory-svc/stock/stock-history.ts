/** Reads the ledger: the changes of the past. */
import type { Knex } from "knex";
import { byIndex } from "../../runtime/database/statements.ts";
import { readCurrentRows } from "./current-rows.ts";
import {
  type HistoryChange,
  type HistoryRow,
  historyColumns,
  ledgerTable,
  petIndex,
  toHistoryChange,
} from "./stock-rows.ts";

/** The changes of the stock, as far as they are kept. */
export class StockHistory {
  readonly #db: Knex;

  constructor(db: Knex) {
    this.#db = db;
  }

  /**
   * Reads changes of the past, the newest first.
   *
   * @param revision only changes before it; undefined for the newest
   * @param petId undefined for the changes of all entries
   * @param limit maximum changes
   * @throws StockUnavailableError
   */
  async before(
    revision: bigint | undefined,
    petId: bigint | undefined,
    limit: number,
  ): Promise<readonly HistoryChange[]> {
    // The index is named, because without it MySQL filters the changes of all entries, and MariaDB all those of the
    // entry.
    const from = petId === undefined ? ledgerTable : byIndex(this.#db, ledgerTable, petIndex);
    const made = this.#db
      .select(historyColumns)
      .from(from as string)
      .where("id", ">", 0)
      .orderBy("id", "desc")
      .limit(limit);
    if (petId !== undefined) made.where("pet_id", petId as never);
    if (revision !== undefined) made.where("id", "<", revision as never);
    const rows = await readCurrentRows<HistoryRow>(this.#db, made, historyColumns, "id");
    return rows.sort((a, b) => Number(b.id - a.id)).map(toHistoryChange);
  }
}
