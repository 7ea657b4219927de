/** What every run begins with. */
import { gatewayMigrations } from "../../gateway/accounts/cli/account-migrations.ts";
import { createKeyAdmin } from "../../gateway/accounts/cli/key-admin.ts";
import { createKey, storedKey } from "../../gateway/accounts/keys/key-format.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { ledgerTable } from "../../inventory-svc/stock/stock-rows.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { type Migration, migrate } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import type { ApiKey } from "./caller-world.ts";
import { Host, runIn, simulate } from "./virtual-time.ts";

/** Under which all keys are made. */
export const pepper = "a pepper of the simulation, which is long enough";

/** What every run begins with: databases with their schemas, some entries, and a key. */
export interface FirstState {
  readonly stock: Buffer;
  readonly keys: Buffer;
  /** A key for each caller, by its name. That of `reader` may not write; that of `spent` has a low limit. */
  readonly apiKeys: ReadonlyMap<string, ApiKey>;
  readonly limitedAccount: string;
}

let made: Promise<FirstState> | undefined;

/** Made once in a process. */
export function firstState(): Promise<FirstState> {
  made ??= makeFirstState();
  return made;
}

const petsAtStart = Array.from({ length: 12 }, (_, i) => BigInt(i + 1));

function makeFirstState(): Promise<FirstState> {
  const setUp = new Host("set-up");
  const onUncaught = (error: unknown) => {
    throw error;
  };
  const migrated = async (schema: string, migrations: readonly Migration[]) => {
    const db = openDatabase("sqlite::memory:");
    await migrate(db, schema, migrations, "up");
    return db;
  };
  const imageOf = async (db: Awaited<ReturnType<typeof migrated>>) => {
    return ((await db.client.acquireConnection()) as { serialize(): Buffer }).serialize();
  };
  return simulate({ seed: 1, onUncaught }, () =>
    runIn(setUp, async () => {
      const stock = await migrated("inventory", stockMigrations);
      const entry = { kind: "put", quantity: 50, status: "available" } as const;
      await new StockStore(stock).write(petsAtStart.map((petId) => ({ ...entry, petId })));
      await stock(ledgerTable).update({ made_at: Date.now() }); // SQLite has gone by the clock of the machine
      const keys = await migrated("gateway", gatewayMigrations);
      const admin = createKeyAdmin(keys, Date.now);
      const apiKeys = new Map<string, ApiKey>();
      let limitedAccount = "";
      const names = [...Array.from({ length: 6 }, (_, i) => `caller-${i}`), "last", "reader", "spent", "limited"];
      for (const name of names) {
        const key = createKey("live", pepper);
        const { keyId, accountId } = await admin.issue({
          account: name,
          plan: "enterprise",
          limits: { perMinute: name === "spent" ? 3 : 1_000_000, perDay: 100_000_000 },
          scopes: name === "reader" ? ["inventory:read"] : ["inventory:read", "inventory:write", "keys:rotate"],
          ...storedKey(key, pepper),
        });
        apiKeys.set(name, { id: keyId, accountId, key });
        limitedAccount = accountId; // the last one
      }
      return { stock: await imageOf(stock), keys: await imageOf(keys), apiKeys, limitedAccount };
    }),
  );
}
