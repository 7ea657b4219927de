/** Writes of two services, each through a node of its own, of which the older one is held up on its way. */
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { GroupCommit } from "../../inventory-svc/stock/group-commit.ts";
import { stockMigrations } from "../../inventory-svc/stock/stock-migrations.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { migrateDatabase } from "../../runtime/database/migrations.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import type { ClusterNode } from "./database-cluster.ts";

/** Half of it later, a quiet connection is asked for a sign of life. */
const silenceTimeoutMs = 1_000;

/** What is held back once a statement is on its way: the statement itself and what follows it, or its answer. */
type Held = "statement" | "answer";

/** Starts a proxy in front of a database that holds back what a test says. */
async function startHoldingProxy(stack: AsyncDisposableStack, targetPort: number) {
  let waits: { readonly text: string; readonly what: Held; readonly reached: () => void } | undefined;
  let held: { readonly what: Held; readonly writes: (() => void)[] } | undefined;
  const server = createServer((client) => {
    const database = connect(targetPort, "127.0.0.1");
    const pass = (what: Held, write: () => void) => {
      if (held?.what === what) held.writes.push(write);
      else write();
    };
    client.on("data", (piece) => {
      if (waits && piece.includes(waits.text)) {
        held = { what: waits.what, writes: [] };
        waits.reached();
        waits = undefined;
      }
      pass("statement", () => database.write(piece));
    });
    database.on("data", (piece) => pass("answer", () => client.write(piece)));
    client.on("error", () => {}).on("close", () => database.destroy());
    database.on("error", () => {}).on("close", () => client.destroy());
    stack.defer(() => void client.destroy());
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  stack.defer(() => void server.close());
  return {
    port: (server.address() as AddressInfo).port,
    /** Resolves when the statement with this text has arrived, from when on it or its answer is held back. */
    hold: (text: string, what: Held) =>
      new Promise<void>((reached) => {
        waits = { text, what, reached };
      }),
    release: () => {
      const writes = held?.writes ?? [];
      held = undefined;
      for (const write of writes) write();
    },
  };
}

const origin = { actor: { kind: "internal" } } as const;
const set = (quantity: number) => ({ changes: [{ kind: "update", petId: 1n, quantity } as const], origin });
const adjust = (delta: number, id: string) => {
  const once = { id, fingerprint: String(delta), requestId: id };
  return { changes: [{ kind: "adjust", petId: 1n, delta, once } as const], origin };
};

/**
 * Lets a newer change overtake an older one whose way is held up, and tells what is left of both.
 *
 * @param settle resolves when every node has what was written
 */
export async function overtake([first, second]: readonly ClusterNode[], settle: () => Promise<unknown>) {
  await using stack = new AsyncDisposableStack();
  const name = "overtaken";
  await first!.query(`CREATE DATABASE ${name}`);
  await settle();
  await migrateDatabase(first!.url(name), "inventory", stockMigrations);
  await settle();
  const url = new URL(first!.url(name));
  const proxy = await startHoldingProxy(stack, Number(url.port));
  url.port = String(proxy.port);
  url.hostname = "127.0.0.1";
  const open = (at: string, options = databaseDefaults) => {
    const db = openDatabase(at, options);
    stack.defer(() => db.destroy());
    const store = new StockStore(db);
    const limits = { maxBatch: 1_000, maxQueued: 10_000, onDequeued: () => {}, onWritten: () => {} };
    return { store, commits: new GroupCommit({ store, ...limits }) };
  };
  const older = open(url.href, { ...databaseDefaults, silenceTimeoutMs });
  const newer = open(second!.url(name));
  await newer.store.write([{ kind: "put", petId: 1n, quantity: 5, status: "available" }]);
  await older.store.position();

  let isWanted = true;
  const reachedWrite = proxy.hold("update `stock_head`", "statement");
  const late = older.commits.submit(set(7), () => isWanted).catch(() => {});
  await reachedWrite;
  isWanted = false; // from here on its caller has got 504
  await newer.commits.submit(set(5), () => true); // which changes nothing
  proxy.release();
  await late;
  const afterUpdates = (await newer.store.get(1n))!.quantity;

  const reachedLock = proxy.hold("for update", "answer");
  const adjusted = older.commits.submit(adjust(1, "a"), () => true).catch(() => {});
  await reachedLock;
  await newer.commits.submit(adjust(10, "b"), () => true);
  await delay(0.7 * silenceTimeoutMs); // by then the sign of life was asked for
  proxy.release();
  await adjusted;
  await older.commits.submit(adjust(1, "a"), () => true); // as its client repeats it
  const afterAdjustments = (await newer.store.get(1n))!.quantity;
  return { afterUpdates, afterAdjustments };
}
