import type { Knex } from "knex";
import type { Change, ChangeGroup, Outcome } from "../../inventory-svc/stock/change.ts";
import type { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import type { Item, Position } from "../../proto/pet.ts";
import type { DatabaseOptions } from "../../runtime/database/open.ts";
import { createMysqlDatabase, dropDatabase } from "./databases.ts";
import { openMigratedStock, pagesOf } from "./open-stock.ts";
import { startScript } from "./processes.ts";
import type { Stack } from "./stack.ts";

/** Changes of single entries. */
export const create = (petId: bigint, quantity = 1): Change => ({
  kind: "create",
  petId,
  quantity,
  status: "available",
});
export const update = (petId: bigint, quantity: number): Change => ({ kind: "update", petId, quantity });
export const adjust = (requestId: string, petId: bigint, delta: number): Change => ({
  kind: "adjust",
  petId,
  delta,
  once: { id: requestId, fingerprint: String(delta) },
});
export const remove = (petId: bigint): Change => ({ kind: "remove", petId });

/** Changes of one caller, each of which stands alone. */
export const asGroup = (changes: readonly Change[]): ChangeGroup => ({
  changes,
  origin: { actor: { kind: "operator" } },
});

/** The petIds from one number to another, both included. */
export const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => BigInt(from + i));
export const kinds = (outcomes: readonly Outcome[]) => outcomes.map(({ kind }) => kind);
export const petIds = (items: readonly Item[]) => items.map(({ petId }) => petId);

/** Makes rows and items comparable: an item that was read as a row also has `removed`. */
export function withoutRemoved(outcomes: readonly Outcome[]): Outcome[] {
  return outcomes.map((outcome) => {
    if (!("item" in outcome)) return outcome;
    const { petId, quantity, status, revision } = outcome.item;
    return { kind: outcome.kind, item: { petId, quantity, status, revision } };
  });
}

/** Reads every entry in pages. */
export async function allPages(store: StockStore, pageSize: number): Promise<Item[]> {
  const items: Item[] = [];
  for await (const page of pagesOf(store, pageSize)) items.push(...page);
  return items;
}

/** Reads all changes after a position in pages of `limit`. Fails on a reset. */
export async function follow(store: StockStore, from: Position, limit: number) {
  const pages = [];
  for (let position = from; ; ) {
    const changes = await store.changesAfter(position, limit);
    if (changes.kind === "reset") throw new Error("the position was refused");
    pages.push(changes);
    if (!changes.more) return pages;
    position = changes.position;
  }
}

/** Collects the error codes of the statements that fail from now on. */
export function failuresOf(db: Knex): string[] {
  const codes: string[] = [];
  db.on("query-error", ({ code }: { code: string }) => codes.push(code));
  return codes;
}

/** Collects the statements that are sent from now on, without quotes: one text for each round trip to MySQL. */
export function noteStatements(db: Knex): string[] {
  const statements: string[] = [];
  db.on("query", ({ sql }: { sql: string }) => statements.push(sql.replaceAll("`", "")));
  return statements;
}

/** Makes an empty stock on MySQL, which is dropped after the suite. */
export async function newMysqlStock(stack: Stack, options?: DatabaseOptions) {
  const url = await createMysqlDatabase();
  stack.defer(() => dropDatabase(url));
  const { db, store } = await openMigratedStock(stack, url, options);
  return { url, db, store };
}

/** Starts processes that write at the same time. @returns the result of each */
export async function runWriters(url: string, tasks: string[][]): Promise<{ done: number; refused?: number }[]> {
  const writers = await Promise.all(
    tasks.map((args) =>
      startScript({
        name: "writer",
        script: "test/support/stock-writer.ts",
        args,
        env: { INVENTORY_DATABASE_URL: url },
      }),
    ),
  );
  await Promise.all(writers.map((writer) => writer.waitForLine((line) => line === "ready" || undefined, 20_000)));
  for (const writer of writers) await writer.kill("SIGUSR2");
  return await Promise.all(
    writers.map((writer) =>
      writer.waitForLine((line) => (line.startsWith("{") ? JSON.parse(line) : undefined), 50_000),
    ),
  );
}
