import { connectInventory, type Inventory } from "./grpc.ts";
import { type OpenStock, openMigratedStock } from "./open-stock.ts";
import { type RunningProcess, startProcess } from "./processes.ts";
import type { Stack } from "./stack.ts";

/** The full name of the gRPC service. */
export const serviceName = "petstore.inventory.v1.InventoryService";

/** Starts an inventory service on a database with its schema, and stops it after the suite. */
export async function startInventoryService(
  stack: Stack,
  url: string,
  env: Record<string, string> = {},
): Promise<RunningProcess> {
  const service = await startProcess({
    name: "inventory-svc",
    script: "inventory-svc/main.ts",
    env: {
      INVENTORY_LISTEN: "127.0.0.1:0",
      INVENTORY_ADMIN_LISTEN: "127.0.0.1:0",
      INVENTORY_DATABASE_URL: url,
      ...env,
    },
  });
  stack.defer(async () => void (await service.stop()));
  return service;
}

/** Connects an internal caller to a service, and closes its connection after the suite. */
export function callerOf(stack: Stack, { listen }: RunningProcess): Inventory {
  const inventory = connectInventory(listen);
  stack.defer(() => inventory.close());
  return inventory;
}

/** Opens a stream of checks, which ends after the suite. */
export function openChecks(stack: Stack, inventory: Inventory): ReturnType<Inventory["check"]> {
  const stream = inventory.check();
  stack.defer(() => stream.call.cancel());
  return stream;
}

/** A service, the stock in its database and a caller. */
export interface ServedStock {
  readonly service: RunningProcess;
  readonly stock: OpenStock;
  readonly inventory: Inventory;
}

/** Brings an empty database up to date, and starts a service on it. All ends after the suite. */
export async function serveStock(stack: Stack, url: string, env?: Record<string, string>): Promise<ServedStock> {
  const stock = await openMigratedStock(stack, url);
  const service = await startInventoryService(stack, url, env);
  return { service, stock, inventory: callerOf(stack, service) };
}

/** Creates the entries 1 to `count`, each with a quantity of one less than its petId. */
export async function fillStock({ store }: OpenStock, count: number): Promise<void> {
  await store.write(
    Array.from({ length: count }, (_, i) => ({
      kind: "create",
      petId: BigInt(i + 1),
      quantity: i,
      status: "available",
    })),
  );
}

export type Groups = NonNullable<Parameters<ReturnType<Inventory["applyChanges"]>["send"]>[0]["groups"]>;
export type Changes = NonNullable<Groups[number]["changes"]>;

/** Makes a group of changes of a caller that waits for longer than any stream lives. */
export const group = (...changes: Changes): Groups[number] => ({ changes, deadlineMs: 60_000 });
