/** Reads the ledger: the changes of the past. */
import type { Knex } from "knex";
import { readCurrent, type ServerRow, serverColumns } from "../../runtime/database/old-primary.ts";
import { byIndex } from "../../runtime/database/statements.ts";
import { readCurrentRows } from "./current-rows.ts";
import { ReadPlaces } from "./read-places.ts";
import { orUnavailable } from "./stock-errors.ts";
import {
  fromHistoryRow,
  type HistoryChange,
  type HistoryRow,
  historyColumns,
  ledgerTable,
  petIndex,
} from "./stock-rows.ts";

/** The changes of the stock, as far as they are kept. */
export class StockHistory {
  readonly #db: Knex;
  readonly #places = new ReadPlaces({ maxRunning: 2, maxWaiting: 100, maxWaitMs: 5_000 });

  constructor(db: Knex) {
    this.#db = db;
  }

  /**
   * Reads changes of the past, the newest first.
   *
   * @param revision only changes before it; undefined for the newest
   * @param petId undefined for the changes of all entries
   * @param limit maximum changes
   * @throws StockUnavailableError, TooManyAtOnceError
   */
  async before(
    revision: bigint | undefined,
    petId: bigint | undefined,
    limit: number,
  ): Promise<readonly HistoryChange[]> {
    // The index is named because MySQL would otherwise look through the changes of all entries, and MariaDB through all
    // those of this entry.
    const from = petId === undefined ? ledgerTable : byIndex(this.#db, ledgerTable, petIndex);
    const made = this.#db
      .select(historyColumns)
      .from(from as string)
      .where("id", ">", 0)
      .orderBy("id", "desc")
      .limit(limit);
    if (petId !== undefined) made.where("pet_id", petId as never);
    if (revision !== undefined) made.where("id", "<", revision as never);
    const rows = await this.#places.take(() => readCurrentRows<HistoryRow>(this.#db, made, historyColumns, "id"));
    return rows.sort((a, b) => Number(b.id - a.id)).map(fromHistoryRow);
  }

  /** Whether there is an entry with this petId, or a change of one is kept. @throws as `before` */
  async has(petId: bigint): Promise<boolean> {
    const entry = this.#db("stock").where({ pet_id: petId as never, removed: 0 });
    const change = this.#db(ledgerTable)
      .where("pet_id", petId as never)
      .where("id", ">", 0);
    const query = this.#db("stock_head")
      .where("id", 1)
      .select(serverColumns(this.#db), this.#db.raw("exists ? or exists ? as known", [entry, change]));
    const read = () =>
      orUnavailable(readCurrent<{ known: number | bigint } & ServerRow>(this.#db, () => query.clone()));
    const [row] = await this.#places.take(read);
    return Number(row!.known) === 1;
  }
}
