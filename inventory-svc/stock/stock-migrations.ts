/** The schema of the stock. */
import { randomUUID } from "node:crypto";
import type { Knex } from "knex";
import { isSqlite } from "../../runtime/database/knex-internals.ts";
import { createTable, dropColumn, type Migration } from "../../runtime/database/migrations.ts";
import { petIndex } from "./stock-rows.ts";

const adjustments = (db: Knex) => (table: Knex.CreateTableBuilder) => {
  table.comment("Adjustments that were made, with their results, for callers that repeat them");
  if (!isSqlite(db)) table.collate("utf8mb4_bin"); // request ids compare byte by byte, as they do in SQLite
  table.bigInteger("revision").primary().comment("Of the stock; new rows go to the end and old ones leave first");
  table.string("request_id", 64).notNullable().unique({ indexName: "stock_adjustments_request_index" });
  table.bigInteger("pet_id").notNullable();
  table.integer("delta").notNullable();
  table.integer("quantity").notNullable().comment("After the adjustment, as is the status");
  table.string("status", 16).notNullable();
  table.bigInteger("made_at").notNullable().comment("Unix milliseconds");
};

const requests = (db: Knex) => (table: Knex.CreateTableBuilder) => {
  table.comment("Changes that happen once, with their results, for callers that repeat them");
  if (!isSqlite(db)) table.collate("utf8mb4_bin"); // ids compare byte by byte, as they do in SQLite
  table.bigIncrements("id").comment("New rows go to the end and old ones leave first");
  table.string("request_id", 160).notNullable().unique({ indexName: "stock_requests_request_index" });
  table.string("fingerprint", 64).notNullable().comment("Tells a repeat from another request with the same id");
  table.bigInteger("pet_id").notNullable();
  table.integer("quantity").notNullable().comment("After the change, as are the status and the revision");
  table.string("status", 16).notNullable();
  table.bigInteger("revision").notNullable();
  table.bigInteger("made_at").notNullable().comment("Unix milliseconds");
};

const ledger = (db: Knex) => (table: Knex.CreateTableBuilder) => {
  table.comment("Every change of the stock; and what answers the repeats of changes that happen once");
  if (!isSqlite(db)) table.collate("utf8mb4_bin"); // ids compare byte by byte, as they do in SQLite
  table.bigInteger("id").primary().comment("The revision that the change made; below 0 where it made none");
  table.bigInteger("pet_id").notNullable();
  table.enum("kind", ["set", "adjust", "status", "create", "remove", "import"]).notNullable();
  table.integer("quantity_before").comment("NULL where there was no entry, as is the status");
  table.integer("quantity").comment("After the change; NULL where there is no entry then, as is the status");
  table.enum("status_before", ["available", "pending", "sold"]);
  table.enum("status", ["available", "pending", "sold"]);
  table.bigInteger("made_at").notNullable().comment("Unix milliseconds");
  table.enum("actor", ["account", "internal", "operator"]).comment("Who made the change; NULL: not known");
  table.string("account", 64);
  table.string("name", 255).comment("Of the actor: the id of the account's key, or a role and a certificate's name");
  table.string("request_id", 64);
  table.string("reason", 200);
  table.string("once_id", 160).unique({ indexName: "stock_ledger_once_index" }).comment("Makes the change happen once");
  table.string("fingerprint", 64).comment("Tells a repeat from another request with the same once_id");
  table.bigInteger("found_revision").comment("Of the entry, where the change made no revision");
  table.index(["pet_id", "id"], petIndex); // a page of an entry's history is a range of this index
};

/** The columns that two tables of changes that happen once have in common. */
const sameColumns = {
  request_id: "request_id",
  pet_id: "pet_id",
  quantity: "quantity",
  status: "status",
  revision: "revision",
  made_at: "made_at",
};

/** Ids without a space are those of adjustments. Their fingerprint is the delta, or with expected revisions a hash. */
const isPlainAdjustment = "request_id not like '% %' and length(fingerprint) <= 11";

export const stockMigrations: readonly Migration[] = [
  {
    name: "0001_stock",
    drops: ["stock"],
    async up(db) {
      await createTable(db, "stock_head", (table) => {
        table.comment("One row: the counter that orders all changes of the stock");
        table.integer("id").primary();
        table.bigInteger("revision").notNullable();
        table
          .string("epoch", 36)
          .notNullable()
          .comment("Names this line of revisions; a restored database needs a new one");
      });
      await db("stock_head").insert({ id: 1, revision: 0, epoch: randomUUID() }).onConflict("id").ignore();
      await createTable(db, "stock", (table) => {
        table.bigInteger("pet_id").primary();
        table.integer("quantity").notNullable();
        table.string("status", 16).notNullable();
        table.bigInteger("revision").notNullable().index("stock_revision_index");
        table.boolean("removed").notNullable().comment("A tombstone, kept so that readers learn of the removal");
      });
    },
    async down(db) {
      await db.schema.dropTableIfExists("stock");
      await db.schema.dropTableIfExists("stock_head");
    },
  },
  {
    name: "0002_stock_adjustments",
    drops: ["stock_adjustments"],
    async up(db) {
      await createTable(db, "stock_adjustments", adjustments(db));
    },
    async down(db) {
      await db.schema.dropTableIfExists("stock_adjustments");
    },
  },
  {
    name: "0003_stock_requests",
    drops: ["stock_requests"],
    dropped: (requests) => requests.whereRaw(`not (${isPlainAdjustment})`),
    async up(db) {
      // The new name keeps services of the previous version from recording adjustments: they would not be carried over.
      await renameTable(db, "stock_adjustments", "stock_adjustments_old");
      await createTable(db, "stock_requests", requests(db), (draft) => {
        const columns = { ...sameColumns, fingerprint: "cast(delta as char)" };
        return copyRows(db, "stock_adjustments_old", draft, columns, (adjustments) => adjustments.orderBy("revision"));
      });
      await db.schema.dropTableIfExists("stock_adjustments_old");
    },
    async down(db) {
      await renameTable(db, "stock_requests", "stock_requests_old");
      await createTable(db, "stock_adjustments", adjustments(db), (draft) => {
        const columns = { ...sameColumns, delta: "cast(fingerprint as signed)" };
        return copyRows(db, "stock_requests_old", draft, columns, (requests) => requests.whereRaw(isPlainAdjustment));
      });
      await db.schema.dropTableIfExists("stock_requests_old");
    },
  },
  {
    name: "0004_stock_floor",
    drops: ["stock_times"],
    async up(db) {
      if (!(await db.schema.hasColumn("stock_head", "floor"))) {
        await db.schema.alterTable("stock_head", (table) => {
          const comment = "Entries that were removed by a revision up to this one are forgotten";
          table.bigInteger("floor").notNullable().defaultTo(0).comment(comment);
        });
      }
      await createTable(db, "stock_times", (table) => {
        table.comment("When the stock had reached which revision, to tell how old a removal is at least");
        table.bigIncrements("id");
        table.bigInteger("revision").notNullable();
        table.bigInteger("noted_at").notNullable().comment("Unix milliseconds");
      });
    },
    async down(db) {
      await db.schema.dropTableIfExists("stock_times");
      if (!(await db.schema.hasColumn("stock_head", "floor"))) return;
      // Services that know no floor would answer a position below it, and miss what is forgotten.
      await db("stock_head").where("floor", ">", 0).update({ epoch: randomUUID() });
      await dropColumn(db, "stock_head", "floor");
    },
  },
  {
    name: "0005_stock_ledger",
    drops: ["stock_ledger"],
    dropped: (changes) => changes.whereNull("once_id"), // the others are carried back
    async up(db) {
      // The new name keeps services of the previous version from recording changes that happen once: they would not be
      // carried over.
      await renameTable(db, "stock_requests", "stock_requests_old");
      await createTable(db, "stock_ledger", ledger(db), (draft) =>
        copyRows(db, "stock_requests_old", draft, {
          id: "-id", // what was before them is not known, so they are no part of the history
          pet_id: "pet_id",
          kind: "case when request_id like '% %' then 'set' else 'adjust' end",
          quantity: "quantity",
          status: "status",
          made_at: "made_at",
          once_id: "request_id",
          fingerprint: "fingerprint",
          found_revision: "revision",
        }),
      );
      await db.schema.dropTableIfExists("stock_requests_old");
    },
    async down(db) {
      await renameTable(db, "stock_ledger", "stock_ledger_old");
      await createTable(db, "stock_requests", requests(db), (draft) => {
        const columns = {
          ...sameColumns,
          request_id: "once_id",
          fingerprint: "fingerprint",
          revision: "coalesce(found_revision, id)",
        };
        return copyRows(db, "stock_ledger_old", draft, columns, (changes) => {
          return changes.whereNotNull("once_id").orderBy("made_at");
        });
      });
      await db.schema.dropTableIfExists("stock_ledger_old");
    },
  },
  {
    name: "0006_stock_writes",
    drops: [],
    async up(db) {
      if (await db.schema.hasColumn("stock_head", "writes")) return;
      await db.schema.alterTable("stock_head", (table) => {
        const comment = "Counts writes, so that each of them changes this row";
        table.bigInteger("writes").notNullable().defaultTo(0).comment(comment);
      });
    },
    async down(db) {
      if (await db.schema.hasColumn("stock_head", "writes")) await dropColumn(db, "stock_head", "writes");
    },
  },
];

/** Renames a table, unless an earlier attempt has done so. */
async function renameTable(db: Knex, from: string, to: string): Promise<void> {
  if ((await db.schema.hasTable(from)) && !(await db.schema.hasTable(to))) await db.schema.renameTable(from, to);
}

/** Copies rows from a table to another one, unless an earlier attempt has done so. @param columns SQL by column */
async function copyRows(
  db: Knex,
  from: string,
  to: string,
  columns: Readonly<Record<string, string>>,
  choose = (rows: Knex.QueryBuilder): Knex.QueryBuilder => rows,
): Promise<void> {
  if (!(await db.schema.hasTable(from))) return;
  const rows = db(from).select(Object.values(columns).map((sql) => db.raw(sql)));
  const names = Object.keys(columns);
  const target = db.raw(`?? (${names.map(() => "??").join(", ")})`, [to, ...names]);
  await db(target as never).insert(choose(rows) as never);
}
