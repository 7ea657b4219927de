// Migrates the stock's schema and hangs before the step is recorded, with the lock held, until a test kills it.
import { stockMigrations } from "../../inventory-svc/stock/migrations.ts";
import { migrate } from "../../runtime/database/migrations.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";

const stuck = stockMigrations.map((migration) => ({
  ...migration,
  up: async (db: Parameters<typeof migration.up>[0]) => {
    await migration.up(db);
    console.log("stuck");
    await new Promise((resolve) => setTimeout(resolve, 600_000));
  },
}));
const db = openDatabase(process.env.INVENTORY_DATABASE_URL!, { ...databaseDefaults, poolMax: 1 });
await migrate(db, "inventory", stuck, "up");
