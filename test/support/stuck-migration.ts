// Migrates the stock's schema and hangs before the step is recorded, with the lock held, until a test kills it.
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { migrateDatabase } from "../../runtime/database/migrations.ts";

const stuck = stockMigrations.map((migration) => ({
  ...migration,
  up: async (db: Parameters<typeof migration.up>[0]) => {
    await migration.up(db);
    console.log("stuck");
    await new Promise((resolve) => setTimeout(resolve, 600_000));
  },
}));
await migrateDatabase(process.env.INVENTORY_DATABASE_URL!, "inventory", stuck);
