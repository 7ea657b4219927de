/** The schema of accounts, keys and their use. */
import type { Knex } from "knex";
import { isSqlite } from "../../../runtime/database/knex-internals.ts";
import { createTable, dropColumn, type Migration } from "../../../runtime/database/migrations.ts";

/**
 * The gateway's schema: accounts, their keys and their use of the API. All times are Unix milliseconds.
 *
 * Texts compare byte by byte on every database (`utf8mb4_bin`, SQLite's default), so `Acme` and `acme` are two
 * accounts.
 */
export const gatewayMigrations: readonly Migration[] = [
  {
    name: "0001_keys",
    drops: ["accounts", "api_keys", "deprecated_use"],
    async up(db) {
      await createTable(db, "accounts", (table) => {
        exactTexts(db, table);
        table.string("id", 32).primary();
        table.string("name", 128).notNullable().unique();
        table.string("plan", 16).notNullable();
        table.integer("per_minute");
        table.integer("per_day");
        table.bigInteger("created_at").notNullable();
      });
      await createTable(db, "api_keys", (table) => {
        exactTexts(db, table);
        table.string("id", 32).primary();
        table.string("account_id", 32).notNullable().index().references("id").inTable("accounts");
        table.binary("key_hash", 32).notNullable().unique();
        table.string("env", 16).notNullable();
        table.string("scopes", 255).notNullable(); // separated by spaces, as in OAuth
        table.bigInteger("created_at").notNullable();
        table.bigInteger("expires_at");
        table.bigInteger("revoked_at");
        table.string("replaced_by", 32); // the key that a rotation made in place of this one
        table.bigInteger("last_used_at");
        table.bigInteger("banned_until").notNullable().defaultTo(0);
        table.integer("ban_step").notNullable().defaultTo(0);
        table.bigInteger("banned_at"); // when the last ban began
      });
      await createTable(db, "deprecated_use", (table) => deprecatedUseByDay(db, table));
    },
    async down(db) {
      await db.schema.dropTableIfExists("deprecated_use");
      await db.schema.dropTableIfExists("api_keys");
      await db.schema.dropTableIfExists("accounts");
    },
  },
  {
    name: "0002_account_minutes",
    drops: ["account_minutes"],
    async up(db) {
      await createTable(db, "account_minutes", (table) => {
        exactTexts(db, table);
        table.string("account_id", 32).notNullable().references("id").inTable("accounts");
        table.bigInteger("minute_start").notNullable().index("account_minutes_start_index");
        table.bigInteger("requests").notNullable();
        table.primary(["account_id", "minute_start"]);
      });
    },
    async down(db) {
      await db.schema.dropTableIfExists("account_minutes");
    },
  },
  {
    name: "0003_deprecated_operations",
    dropsColumn: { table: "deprecated_use", column: "operation", unset: "getPet" }, // `up` gives this name to all rows
    async up(db) {
      await rebuildDeprecatedUse(db, "by operation", deprecatedUseByOperation, (before) =>
        before.select("account_id", db.raw("'getPet'"), "day", "requests"),
      );
    },
    async down(db) {
      await rebuildDeprecatedUse(db, "by day", deprecatedUseByDay, (before) =>
        before.groupBy("account_id", "day").select("account_id", "day").sum("requests"),
      );
    },
  },
  // A gateway of the previous version does not write this column, so its refused requests count as served.
  columnStep("0004_refused_requests", { table: "account_minutes", column: "refused", unset: 0 }, (table) =>
    table.bigInteger("refused").notNullable().defaultTo(0),
  ),
  // The id of the family's first key, from which rotations made the others; null in that key's own row.
  columnStep("0005_key_lines", { table: "api_keys", column: "line", unset: null }, (table) => table.string("line", 32)),
  // The fingerprint of the pepper that the key was made under.
  columnStep("0006_key_peppers", { table: "api_keys", column: "pepper", unset: null }, (table) =>
    table.string("pepper", 32),
  ),
];

/** A step that adds a column. @param dropsColumn the column, and the value that means "not set" */
function columnStep(
  name: string,
  dropsColumn: NonNullable<Migration["dropsColumn"]>,
  add: (table: Knex.AlterTableBuilder) => void,
): Migration {
  const { table, column } = dropsColumn;
  return {
    name,
    dropsColumn,
    async up(db) {
      if (!(await db.schema.hasColumn(table, column))) await db.schema.alterTable(table, add);
    },
    async down(db) {
      await dropColumn(db, table, column);
    },
  };
}

function deprecatedUseByDay(db: Knex, table: Knex.CreateTableBuilder): void {
  exactTexts(db, table);
  table.string("account_id", 32).notNullable().references("id").inTable("accounts");
  table.string("day", 10).notNullable(); // UTC, as 2026-01-31
  table.bigInteger("requests").notNullable();
  table.primary(["account_id", "day"]);
}

function deprecatedUseByOperation(db: Knex, table: Knex.CreateTableBuilder): void {
  exactTexts(db, table);
  table.string("account_id", 32).notNullable();
  // Names of foreign keys are unique in MySQL, and the old table, which still exists, has the default name.
  table.foreign("account_id", "deprecated_use_account_foreign").references("id").inTable("accounts");
  // For gateways of the previous version on MySQL, which name no operation. On SQLite such a gateway cannot write its
  // counts until it is updated.
  table.string("operation", 32).notNullable().defaultTo("getPet");
  table.string("day", 10).notNullable();
  table.bigInteger("requests").notNullable();
  table.primary(["account_id", "operation", "day"]);
}

/**
 * Gives `deprecated_use` other columns and keeps its counts. The table first moves out of the way: a gateway that
 * writes in between fails, and writes the same counts half a minute later.
 *
 * @param target the columns of the new table; a run that finds them there already moves nothing
 * @param rows selects from the old table what the new one gets, in the order of the new columns
 */
async function rebuildDeprecatedUse(
  db: Knex,
  target: "by day" | "by operation",
  columns: (db: Knex, table: Knex.CreateTableBuilder) => void,
  rows: (before: Knex.QueryBuilder) => Knex.QueryBuilder,
): Promise<void> {
  const [name, before] = ["deprecated_use", "deprecated_use_before"];
  if (await db.schema.hasTable(name)) {
    const current = (await db.schema.hasColumn(name, "operation")) ? "by operation" : "by day";
    if (current !== target) await db.schema.renameTable(name, before);
  }
  await createTable(
    db,
    name,
    (table) => columns(db, table),
    (draft) => db(draft).insert(rows(db(before))),
  );
  await db.schema.dropTableIfExists(before);
}

/** Lets a table of MySQL tell `A` from `a`, unlike the default collation, and have InnoDB's transactions. */
function exactTexts(db: Knex, table: Knex.CreateTableBuilder): void {
  if (isSqlite(db)) return;
  table.engine("InnoDB");
  table.charset("utf8mb4");
  table.collate("utf8mb4_bin");
}
