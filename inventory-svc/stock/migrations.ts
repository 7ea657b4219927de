/** The schema of the stock. */
import { randomUUID } from "node:crypto";
import { createTable, type Migration } from "../../runtime/database/migrations.ts";
import { isSqlite } from "../../runtime/database/open.ts";

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
      await createTable(db, "stock_adjustments", (table) => {
        table.comment("Adjustments that were made, with their results, for callers that repeat them");
        if (!isSqlite(db)) table.collate("utf8mb4_bin"); // request ids compare byte by byte, as they do in SQLite
        table.bigInteger("revision").primary().comment("Of the stock; new rows go to the end and old ones leave first");
        table.string("request_id", 64).notNullable().unique({ indexName: "stock_adjustments_request_index" });
        table.bigInteger("pet_id").notNullable();
        table.integer("delta").notNullable();
        table.integer("quantity").notNullable().comment("After the adjustment, as is the status");
        table.string("status", 16).notNullable();
        table.bigInteger("made_at").notNullable().comment("Unix milliseconds");
      });
    },
    async down(db) {
      await db.schema.dropTableIfExists("stock_adjustments");
    },
  },
];
