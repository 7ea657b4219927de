// Measures what the ledger costs and gives: `npm run bench -- --only ledger`.
import { join } from "node:path";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { migrateDatabase } from "../../runtime/database/migrations.ts";
import { openDatabase } from "../../runtime/database/open.ts";
import type { Plan } from "./list.ts";
import { type Figures, measure, medians } from "./measure.ts";
import { type BenchServers, startOurs, type Variant } from "./systems.ts";

/** A load, and what each of its requests is. */
export interface LedgerRow {
  readonly load: string;
  /** Changes in each request. */
  readonly changes: number;
  readonly figures: Figures;
}

const entries = 10_000;
const millions = 1_000_000;
const script = (name: string) => join(import.meta.dirname, name);

/** Measures PATCH with and without history, adjustments alone and together, and pages of a short and a long history. */
export async function benchLedger(servers: BenchServers, plan: Plan): Promise<LedgerRow[]> {
  await using stack = new AsyncDisposableStack();
  const withHistory = await startOurs(stack, servers, entries);
  const without = await startOurs(stack, servers, entries, { INVENTORY_HISTORY_DAYS: "0" });
  const patch = { script: script("patch.lua"), args: [String(entries)], connections: 64, changes: 1 };
  const adjust = (changes: number, connections: number) => {
    return { script: script("adjust.lua"), args: [String(entries), String(changes)], connections, changes };
  };
  const page = (petId: number) => {
    // A gateway reads 10 histories at a time for one account.
    return { script: script("get.lua"), args: [`/v1/inventory/${petId}/history`], connections: 10, changes: 0 };
  };
  const [longId, shortId] = [entries + 1, entries + 2];
  const bulk = { script: script("bulk.lua"), args: [String(entries)], connections: 16 };
  const bytes = await bytesOfChanges(withHistory, () => run(withHistory, bulk, 20));
  plan.say(`A change takes ${bytes.toFixed(0)} bytes of the ledger, its indexes included.`);
  await addHistories(withHistory, longId, shortId);
  plan.say(`A million records were migrated to the ledger in ${(await migrateRecords(servers)).toFixed(1)} s.`);

  const loads = [
    { load: "PATCH, history of 30 days", variant: withHistory, ...patch },
    { load: "PATCH, no history", variant: without, ...patch },
    { load: "adjustments, one each", variant: withHistory, ...adjust(1, 64) },
    { load: "adjustments, 100 each", variant: withHistory, ...adjust(100, 16) },
    { load: "page of a million changes", variant: withHistory, ...page(longId) },
    { load: "page of ten changes", variant: withHistory, ...page(shortId) },
  ];
  const figures = loads.map((): Figures[] => []);
  // The first round only warms up.
  for (let round = 0; round <= plan.rounds; round++) {
    for (const [i, { variant, ...load }] of loads.entries()) {
      const found = await run(variant, load, plan.seconds);
      if (round > 0) figures[i]!.push(found);
      await pause();
    }
  }
  plan.say(
    ["", "requests/s", "p50 ms", "gateway CPU ms", "service CPU ms", "changes per CPU s", "errors"].map(cell).join(""),
  );
  return loads.map(({ load, changes }, i) => {
    const row = { load, changes, figures: medians(figures[i]!) };
    plan.say(line(row));
    return row;
  });
}

interface LedgerLoad {
  readonly script: string;
  readonly args: readonly string[];
  readonly connections: number;
}

async function run({ address, headers, processes }: Variant, load: LedgerLoad, seconds: number): Promise<Figures> {
  const wanted = { ...headers, "Content-Type": "application/json" };
  return await measure({ ...load, address, seconds, headers: wanted }, processes);
}

/** A backlog must not slow the next run, nor count as a part of it. */
const pause = () => new Promise((resolve) => setTimeout(resolve, 700));

type Ours = Awaited<ReturnType<typeof startOurs>>;

/** Makes changes. @returns the bytes of the ledger, its indexes included, for each of them */
async function bytesOfChanges({ system }: Ours, change: () => Promise<unknown>): Promise<number> {
  const db = openDatabase(system.databaseUrls.inventory);
  const read = async () => {
    await db.raw("ANALYZE TABLE stock_ledger");
    const [{ size }] = await db("information_schema.tables")
      .whereRaw("table_schema = DATABASE() AND table_name = 'stock_ledger'")
      .select(db.raw("data_length + index_length AS size"));
    const [counted] = await db("stock_ledger").count({ count: "*" });
    return { size: Number(size), count: Number(counted!.count) };
  };
  try {
    await db.raw("SET SESSION information_schema_stats_expiry = 0").catch(() => {}); // MariaDB has no such cache
    const before = await read();
    await change();
    await pause();
    const after = await read();
    return (after.size - before.size) / (after.count - before.count);
  } finally {
    await db.destroy();
  }
}

/** Gives an entry a million changes and another one ten. */
async function addHistories({ system }: Ours, longId: number, shortId: number): Promise<void> {
  const db = openDatabase(system.databaseUrls.inventory);
  try {
    const [newest] = await db("stock_ledger").max({ id: "id" });
    const last = newest!.id;
    const rows = (petId: number, first: number, count: number) =>
      Array.from({ length: count }, (_, i) => ({
        id: Number(last) + first + i,
        pet_id: petId,
        kind: "set",
        quantity_before: i,
        quantity: i + 1,
        status_before: "sold",
        status: "sold",
        made_at: Date.now(),
        actor: "operator",
      }));
    for (let first = 1; first < millions; first += 2_000) await db("stock_ledger").insert(rows(longId, first, 2_000));
    await db("stock_ledger").insert(rows(shortId, millions + 1, 10));
    await db("stock_head").update({ revision: Number(last) + millions + 10 });
  } finally {
    await db.destroy();
  }
}

/** Migrates a million records of the tables before the ledger. @returns seconds */
async function migrateRecords({ database }: BenchServers): Promise<number> {
  const url = await database.createDatabase();
  try {
    await migrateDatabase(url, "inventory", stockMigrations.slice(0, 4));
    const db = openDatabase(url);
    const record = { pet_id: 1, quantity: 1, status: "sold", revision: 1, made_at: Date.now(), fingerprint: "x" };
    for (let first = 0; first < millions; first += 5_000) {
      const rows = Array.from({ length: 5_000 }, (_, i) => ({ ...record, request_id: `acc_1 ${first + i} 1` }));
      await db("stock_requests").insert(rows);
    }
    await db.destroy();
    const startedMs = performance.now();
    await migrateDatabase(url, "inventory", stockMigrations);
    return (performance.now() - startedMs) / 1_000;
  } finally {
    await database.dropDatabase(url);
  }
}

function line({ load, changes, figures }: LedgerRow): string {
  const { requestsPerSecond, p50Ms, cpuMs, errors } = figures;
  const perCpuSecond = changes === 0 ? "" : ((changes * 1_000) / cpuMs.gateway!).toFixed(0);
  const numbers = [
    requestsPerSecond.toFixed(0),
    p50Ms.toFixed(2),
    cpuMs.gateway!.toFixed(4),
    cpuMs.service!.toFixed(4),
  ];
  return [load, ...numbers, perCpuSecond, errors].map(cell).join("");
}

function cell(value: string | number): string {
  return String(value).padStart(27);
}
