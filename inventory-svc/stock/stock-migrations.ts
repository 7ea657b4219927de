/** The schema of the stock. */
import { randomUUID } from "node:crypto";
import type { Knex } from "knex";
import { createTable, type Migration } from "../../runtime/database/migrations.ts";
import { isSqlite } from "../../runtime/database/open.ts";

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
    dropped: (requests) => requests.where("request_id", "like", "% %"), // adjustments are carried back
    async up(db) {
      // From here on, services of the previous version record no adjustment that would not be carried over.
      await renameTable(db, "stock_adjustments", "stock_adjustments_old");
      await createTable(
        db,
        "stock_requests",
        (table) => {
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
        },
        (draft) => {
          return copyRows(db, "stock_adjustments_old", draft, { fingerprint: "cast(delta as char)" }, (adjustments) =>
            adjustments.orderBy("revision"),
          );
        },
      );
      await db.schema.dropTableIfExists("stock_adjustments_old");
    },
    async down(db) {
      await renameTable(db, "stock_requests", "stock_requests_old");
      await createTable(db, "stock_adjustments", adjustments(db), (draft) => {
        return copyRows(db, "stock_requests_old", draft, { delta: "cast(fingerprint as signed)" }, (requests) =>
          requests.where("request_id", "not like", "% %"),
        );
      });
      await db.schema.dropTableIfExists("stock_requests_old");
    },
  },
  {
    name: "0004_stock_floor",
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
      await db.raw("alter table ?? drop column ??", ["stock_head", "floor"]); // Knex would make a new table for SQLite
    },
  },
];

/** Renames a table, unless an earlier attempt has done so. */
async function renameTable(db: Knex, from: string, to: string): Promise<void> {
  if ((await db.schema.hasTable(from)) && !(await db.schema.hasTable(to))) await db.schema.renameTable(from, to);
}

/** Copies rows of adjustments between their two tables, unless an earlier attempt has done so. */
async function copyRows(
  db: Knex,
  from: string,
  to: string,
  converted: Readonly<Record<string, string>>,
  choose: (rows: Knex.QueryBuilder) => Knex.QueryBuilder,
): Promise<void> {
  if (!(await db.schema.hasTable(from))) return;
  const columns = ["request_id", "pet_id", "quantity", "status", "revision", "made_at"];
  const rows = db(from).select(...columns, ...Object.values(converted).map((sql) => db.raw(sql)));
  const names = [...columns, ...Object.keys(converted)];
  const target = db.raw(`?? (${names.map(() => "??").join(", ")})`, [to, ...names]);
  await db(target as never).insert(choose(rows) as never);
}
