import { setTimeout as delay } from "node:timers/promises";
import { createAuthority } from "../support/certificates.ts";
import { startLink } from "../support/link.ts";
import { connectMysql } from "../support/mysql-client.ts";
import { holdWriteLock, openStock } from "../support/open-stock.ts";
import { startProcess } from "../support/processes.ts";
import type { Prometheus, Targets } from "../support/prometheus.ts";
import type { Restartable } from "../support/restartable.ts";
import { until } from "../support/until.ts";
import type { WatchedSystem } from "./watched-system.ts";

/** Makes a fault in a running system. @returns a function that ends it */
export type Fault = (system: WatchedSystem) => Promise<() => Promise<unknown>>;

/** The faults by what happens, as part of a sentence. */
export const faults = {
  "one request in a hundred fails": async ({ orders }) => {
    orders.failEvery = 8;
    return async () => {
      orders.failEvery = 0;
    };
  },
  "one request of the inventory in a hundred is slow": async ({ load }) => {
    load.slowEvery = 12; // of the 7 requests to operations in each round
    return async () => {
      load.slowEvery = 0;
    };
  },
  "a service behind the gateway fails": async ({ orders }) => {
    orders.failEvery = 1;
    return async () => {
      orders.failEvery = 0;
    };
  },
  "the network between the tiers is slow": async ({ links }) => {
    for (const link of links.services) link.delayMs = 600;
    return async () => {
      for (const link of links.services) link.delayMs = 0;
    };
  },
  "a gateway is killed": ({ gateways }) => kill([gateways[1]]),
  "all gateways are killed": ({ gateways }) => kill(gateways),
  "more gateways run than GATEWAY_REPLICAS says": async ({ system, prometheus, targets }) => {
    const more = await system.startGateway({ GATEWAY_ADMIN_LISTEN: "127.0.0.1:0" });
    await prometheus.watch({ ...targets, gateway: [...targets.gateway, more.admin] });
    return async () => {
      await unwatch(prometheus, targets, "gateway-3");
      await more.stop();
    };
  },
  "Redis is killed": async ({ redis }) => {
    await redis.kill("SIGKILL");
    return () => redis.restart();
  },
  "the database of the keys cannot be reached": async ({ links }) => {
    links.keys.cut();
    return async () => links.keys.mend();
  },
  "the services cannot be reached": async ({ links }) => {
    for (const link of links.services) link.cut();
    return async () => {
      for (const link of links.services) link.mend();
    };
  },
  "the services do not answer": async ({ links }) => {
    for (const link of links.services) link.silence();
    return async () => {
      for (const link of links.services) link.mend();
    };
  },
  "a gateway gets more requests than it has time for": async ({ gateways, load }) => {
    load.moreReads = 80;
    const end = repeat(() => pause([gateways[0]], 150, 350));
    return async () => {
      load.moreReads = 0;
      await end();
    };
  },
  "the services get little time": async ({ services }) => repeat(() => pause(services, 320, 100)),
  "a service is killed": ({ services }) => kill([services[1]]),
  "all services are killed": ({ services }) => kill(services),
  "a service crashes again and again": async ({ services, prometheus }) => {
    const query = 'process_start_time_seconds{instance="inventory-svc-2"}';
    for (let i = 0; i < 3; i++) {
      // The metric has whole seconds, so two starts in the same second would look like one.
      await until(() => prometheus.shows(`time() - ${query} > 2`));
      const { result } = await prometheus.ask<{ result: { value: [number, string] }[] }>("query", { query });
      await services[1].crash();
      await until(() => prometheus.shows(`${query} != ${result[0]!.value[1]}`));
    }
    return async () => {};
  },
  "the database of the stock cannot be reached": async ({ links }) => {
    links.stock.cut();
    return async () => links.stock.mend();
  },
  "the database of the stock does not answer": async ({ links }) => {
    links.stock.silence();
    return async () => links.stock.mend();
  },
  "one of several services loses its database": async (watched) => {
    await using starting = new AsyncDisposableStack();
    const link = await startLink(starting, watched.database.port);
    const url = new URL(watched.system.databaseUrls.inventory);
    url.port = String(link.port);
    await startFurtherService(starting, watched, { INVENTORY_DATABASE_URL: url.href });
    link.cut();
    const started = starting.move();
    return () => started.disposeAsync();
  },
  "a certificate is not renewed": async (watched) => {
    await using starting = new AsyncDisposableStack();
    const { cert, key, ca } = await (await createAuthority(starting)).issue({ names: ["DNS:inventory.internal"] });
    await startFurtherService(starting, watched, {
      INVENTORY_DATABASE_URL: watched.system.databaseUrls.inventory,
      INVENTORY_TLS_CERT: cert,
      INVENTORY_TLS_KEY: key,
      INVENTORY_TLS_CLIENT_CA: ca,
      INVENTORY_TLS_ROLES: "spiffe://petstore/gateway=writer",
    });
    const started = starting.move();
    return () => started.disposeAsync();
  },
  "the database server forgets commits in a crash": async ({ database }) => {
    await setGlobal(database.url(""), "innodb_flush_log_at_trx_commit = 2");
    return () => setGlobal(database.url(""), "innodb_flush_log_at_trx_commit = 1");
  },
  "the database of the stock has lost changes": async ({ system, services, gateways }) => {
    const { db, store, close } = openStock(system.databaseUrls.inventory);
    await db.transaction(async (trx) => {
      const { revision } = await trx("stock_head").forUpdate().first("revision");
      const kept = BigInt(revision) - 3n;
      await trx("stock_ledger").where("id", ">", String(kept)).delete();
      await trx("stock_head").update({ revision: String(kept) });
    });
    return async () => {
      await store.beginEpoch();
      await close();
      for (const process of [...services, ...gateways]) await process.crash(); // the alert ends with the process
    };
  },
  "another writer holds the lock of the stock": async ({ system }) =>
    repeat(async () => {
      const lock = await holdWriteLock(system.databaseUrls.inventory);
      await delay(1_300);
      await lock.release();
    }),
  "many changes wait for another writer": async ({ system }) =>
    repeat(async () => {
      const lock = await holdWriteLock(system.databaseUrls.inventory);
      const changes = Array.from({ length: 55 }, (_, i) => changed(system, i));
      await delay(2_500);
      await lock.release();
      await Promise.all(changes);
    }),
  "more callers read than there are connections, over a slow network": async ({ system, links }) => {
    links.stock.delayMs = 50;
    const ends = Array.from({ length: 40 }, () => repeat(() => system.stored(1n).catch(() => {})));
    return async () => {
      links.stock.delayMs = 0;
      await Promise.all(ends.map((end) => end()));
    };
  },
} satisfies Record<string, Fault>;

export type FaultName = keyof typeof faults;

/** Starts a third service, to which no gateway connects. It is stopped, and no longer scraped, with the stack. */
async function startFurtherService(
  stack: AsyncDisposableStack,
  { prometheus, targets }: WatchedSystem,
  env: Record<string, string>,
): Promise<void> {
  const listen = "127.0.0.1:0";
  const service = await startProcess({
    name: "a further inventory-svc",
    script: "inventory-svc/main.ts",
    env: { LOG_LEVEL: "fatal", INVENTORY_LISTEN: listen, INVENTORY_ADMIN_LISTEN: listen, ...env },
  });
  stack.defer(async () => void (await service.stop()));
  stack.defer(() => unwatch(prometheus, targets, "inventory-svc-3"));
  await prometheus.watch({ ...targets, "inventory-svc": [...targets["inventory-svc"], service.admin] });
}

/** Scrapes the usual targets alone again, and waits until a further instance is forgotten. */
async function unwatch(prometheus: Prometheus, targets: Targets, instance: string): Promise<void> {
  await prometheus.watch(targets);
  await until(async () => !(await prometheus.shows(`up{instance="${instance}"}`)), { withinMs: 30_000 }); // every 5 s
}

async function kill(members: readonly Restartable[]): Promise<() => Promise<unknown>> {
  await Promise.all(members.map((member) => member.current.kill("SIGKILL")));
  return () => Promise.all(members.map((member) => member.start()));
}

/** Takes a step again and again. @returns a function that ends it after a whole step */
function repeat(step: () => Promise<unknown>): () => Promise<void> {
  let isOver = false;
  const run = async () => {
    while (!isOver) await step();
  };
  const running = run();
  return async () => {
    isOver = true;
    await running;
  };
}

/** Stops processes for a time and lets them run for a time. */
async function pause(members: readonly Restartable[], stoppedMs: number, runningMs: number): Promise<void> {
  await Promise.all(members.map((member) => member.current.kill("SIGSTOP")));
  await delay(stoppedMs);
  await Promise.all(members.map((member) => member.current.kill("SIGCONT")));
  await delay(runningMs);
}

/** Resolves once an internal caller's change of a quantity is over. */
function changed({ client }: WatchedSystem["system"], quantity: number): Promise<void> {
  return new Promise((resolve) => {
    client.updateInventory({ petId: 1n, quantity, expectedRevisions: [] }, () => resolve());
  });
}

async function setGlobal(url: string, assignment: string): Promise<void> {
  const connection = await connectMysql(url);
  await connection.query(`SET GLOBAL ${assignment}`);
  await connection.end();
}
