/** Forgets what the stock no longer needs: old changes in the ledger, and removed entries. */
import type { Knex } from "knex";
import { clockMsSql, retried } from "../../runtime/database/statements.ts";
import { orUnavailable } from "./stock-errors.ts";
import { ledgerTable } from "./stock-rows.ts";

/** How many notes `hasGap` reads; several services may note the same hour. */
const maxNotes = 100;

/** Deletes what is old from the tables of a stock. Several services may do so at once. */
export class Retention {
  readonly #db: Knex;

  constructor(db: Knex) {
    this.#db = db;
  }

  /**
   * Deletes changes from the ledger that are older than `ageMs`, the oldest first. It touches no row that a write
   * touches.
   *
   * @param ageMs by the clock of the database
   * @param limit maximum changes
   * @param kind `revisions`: changes that made a revision, whose ids are above 0. `unchanged`: changes that happened
   *   once and made none, whose ids are below 0
   * @param after the id after which to begin, on the way up or down from 0; 0 for the first step
   * @returns the id to go on after; undefined when no other change is that old
   * @throws StockUnavailableError
   */
  async deleteFromLedger(
    ageMs: number,
    limit: number,
    kind: "revisions" | "unchanged",
    after: bigint,
  ): Promise<bigint | undefined> {
    const [isAfter, isUpTo, order] = kind === "revisions" ? [">", "<=", "asc"] : ["<", ">=", "desc"];
    const recorded = () => this.#db(ledgerTable).where("id", isAfter!, after as never);
    const age = this.#ageSince("made_at");
    const oldest: { id: bigint; age: bigint | number }[] = await orUnavailable(
      recorded().orderBy("id", order).limit(limit).select("id", { age }),
    );
    // A time in the future says nothing about the changes after it: the clock was wrong.
    const kept = oldest.findIndex(({ age }) => age >= 0 && age <= ageMs);
    const last = (kept === -1 ? oldest : oldest.slice(0, kept)).at(-1)?.id;
    if (last === undefined) return undefined;
    const old = recorded().where("id", isUpTo!, last as never);
    await orUnavailable(old.where(age, ">", ageMs as never).delete());
    return kept === -1 && oldest.length === limit ? last : undefined;
  }

  /**
   * Notes which revision the stock has reached by now, unless that was noted a short time ago. Notes tell the age of
   * removals, which have no time of their own: all up to a noted revision are older than its note.
   *
   * @param intervalMs the shortest time between two notes, by the clock of the database
   * @throws StockUnavailableError
   */
  async noteTime(intervalMs: number): Promise<void> {
    const now = this.#db.raw(clockMsSql(this.#db));
    const recent = this.#db("stock_times").whereBetween(this.#ageSince("noted_at"), [0, intervalMs] as never);
    const reached = this.#db("stock_head").where({ id: 1 }).whereNotExists(recent.select("id"));
    const target = this.#db.raw("?? (??, ??)", ["stock_times", "revision", "noted_at"]);
    await orUnavailable(this.#db(target as never).insert(reached.select("revision", now as never) as never));
  }

  /**
   * Tells whether the notes of `noteTime` have had a gap lately: the clock of the database was set forward, or no
   * service ran.
   *
   * @param gapMs longer than the time between two notes of services that run
   * @param agoMs a gap counts if it ended at most this long ago
   * @throws StockUnavailableError
   */
  async hasGap(gapMs: number, agoMs: number): Promise<boolean> {
    const age = this.#ageSince("noted_at");
    const noted: { age: bigint | number }[] = await orUnavailable(
      this.#db("stock_times").where(age, ">=", 0).orderBy("noted_at", "desc").limit(maxNotes).select({ age }),
    );
    const ages = [0, ...noted.map(({ age }) => Number(age))];
    return ages.some((ended, i) => ended <= agoMs && (ages[i + 1] ?? ended) - ended > gapMs);
  }

  /**
   * Deletes the tombstones of entries that were removed more than `ageMs` ago, the earliest revisions first. The same
   * transaction moves the floor up to the end of what this step has looked at, so a reader at or above the floor
   * misses no removal. A step is bounded by the rows that it looks at, tombstones or not.
   *
   * @param ageMs by the clock of the database and the times that were noted
   * @param limit maximum rows
   * @returns whether there is more to look at
   * @throws StockUnavailableError
   */
  async forgetRemovals(ageMs: number, limit: number): Promise<boolean> {
    const db = this.#db;
    const now = clockMsSql(db);
    // An old note with a later revision than a recent one was made while the clock was behind.
    const noted = db("stock_times").whereRaw(
      `${now} - stock_times.noted_at > ? and not exists (select 1 from stock_times as recent
        where ${now} - recent.noted_at between 0 and ? and recent.revision < stock_times.revision)`,
      [ageMs, ageMs],
    );
    const [old] = await orUnavailable<{ revision: bigint | null }[]>(noted.max({ revision: "revision" }));
    const { floor }: { floor: bigint } = await orUnavailable(db("stock_head").where({ id: 1 }).first("floor"));
    const end = old?.revision ?? floor;
    if (end <= floor) return false;
    const rows: { pet_id: bigint; revision: bigint; removed: bigint | number }[] = await orUnavailable(
      db("stock")
        .where("revision", ">", floor as never)
        .where("revision", "<=", end as never)
        .orderBy("revision")
        .limit(limit)
        .select("pet_id", "revision", "removed"),
    );
    const isFull = rows.length === limit;
    const reached = isFull ? rows.at(-1)!.revision : end;
    const tombstones = rows.filter(({ removed }) => Number(removed) === 1).map(({ pet_id }) => pet_id);
    const forget = () =>
      db.transaction(async (transaction) => {
        // Locks the head of the stock first, as each write does. So the two queue there, and never hold rows that the
        // other needs.
        const risen = db.raw("case when ?? < ? then ? else ?? end", ["floor", reached, reached, "floor"] as never);
        await transaction("stock_head").where({ id: 1 }).update({ floor: risen });
        // An entry that was made again meanwhile has a later revision, even if it was removed again.
        const forgotten = transaction("stock")
          .whereIn("pet_id", tombstones as never[])
          .where("removed", 1);
        await forgotten.where("revision", "<=", reached as never).delete();
        await transaction("stock_times")
          .where("revision", "<=", reached as never)
          .delete();
      });
    await orUnavailable(retried(forget)); // where several servers take writes, it may lose against one of them
    return isFull;
  }

  /** How long ago a time in a column is, in milliseconds by the clock of the database. */
  #ageSince(column: string): never {
    return this.#db.raw(`${clockMsSql(this.#db)} - ${column}`) as never;
  }
}
