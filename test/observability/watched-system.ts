import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type DatabaseServer, startPrivateDatabaseServer } from "../support/database-server.ts";
import { type Link, startLink } from "../support/link.ts";
import { type Load, startLoad } from "../support/load.ts";
import { freePort } from "../support/ports.ts";
import { type Prometheus, type PrometheusOptions, startPrometheus, type Targets } from "../support/prometheus.ts";
import { type RedisServer, startRedisServer } from "../support/redis-server.ts";
import { firstService, type Restartable, startRestartable } from "../support/restartable.ts";
import { type System, startSystem } from "../support/system.ts";
import { until } from "../support/until.ts";

/** Both tiers twice under a load and a real Prometheus, with all that a fault needs in the hands of a test. */
export interface WatchedSystem {
  readonly system: System;
  readonly gateways: readonly [Restartable, Restartable];
  readonly services: readonly [Restartable, Restartable];
  readonly database: DatabaseServer;
  readonly redis: RedisServer;
  readonly links: {
    /** From the gateways to their database. */
    readonly keys: Link;
    /** From the services to theirs. */
    readonly stock: Link;
    /** From the gateways to each service. */
    readonly services: readonly Link[];
  };
  readonly orders: Orders;
  /** On the first gateway. */
  readonly load: Load;
  readonly prometheus: Prometheus;
  /** What Prometheus scrapes. */
  readonly targets: Targets;
}

/** A stand-in for the service that owns the orders. */
interface Orders {
  readonly url: string;
  /** It answers each request of this number with 500; 0, at first, for none. */
  failEvery: number;
}

const quiet = { LOG_LEVEL: "fatal" };

/** Starts everything. It is stopped with the stack. */
export async function startWatchedSystem(
  stack: AsyncDisposableStack,
  options: PrometheusOptions = {},
): Promise<WatchedSystem> {
  const database = await startPrivateDatabaseServer();
  stack.defer(() => database.stop());
  const redis = await startRedisServer();
  stack.defer(() => redis.stop());
  const orders = await startOrders(stack);
  const ports = [await freePort(), await freePort()] as const;
  const links = {
    keys: await startLink(stack, database.port),
    stock: await startLink(stack, database.port),
    services: [await startLink(stack, ports[0]), await startLink(stack, ports[1])],
  };
  const serviceEnv = async (port: number) => ({
    ...quiet,
    INVENTORY_MAX_QUEUED: "100",
    INVENTORY_DATABASE_TIMEOUT_MS: "6000",
    INVENTORY_LISTEN: `127.0.0.1:${port}`,
    INVENTORY_ADMIN_LISTEN: `127.0.0.1:${await freePort()}`,
  });
  const databaseUrls = {
    gateway: await urlOver(links.keys, database),
    inventory: await urlOver(links.stock, database),
  };
  const system = await startSystem({
    databaseUrls,
    gateways: 0,
    seed: [{ petId: 1n, quantity: 1, status: "available" }],
    inventoryEnv: await serviceEnv(ports[0]),
    gatewayEnv: {
      ...quiet,
      INVENTORY_ADDRESS: `ipv4:${links.services.map(({ port }) => `127.0.0.1:${port}`).join(",")}`,
      ORDERS_UPSTREAM_URL: orders.url,
      INVENTORY_TIMEOUT_MS: "10000",
      REDIS_URL: redis.url,
      GATEWAY_REPLICAS: "2",
      PLAN_LIMITS: "free=2/1000,pro=100000/1000000,business=100000/1000000",
      ADDRESS_GUARD_PER_MINUTE: "600",
      OVERLOAD_REQUESTS: "60",
    },
  });
  stack.defer(() => system.close());
  const secondService = { ...(await serviceEnv(ports[1])), INVENTORY_DATABASE_URL: databaseUrls.inventory };
  const start = (name: "gateway" | "inventory-svc", env: Record<string, string>) =>
    startRestartable(stack, { name, script: `${name}/main.ts`, env });
  const services = [firstService(system), await start("inventory-svc", secondService)] as const;
  const gatewayEnv = async () => ({
    ...system.gatewayEnv,
    GATEWAY_LISTEN: `127.0.0.1:${await freePort()}`,
    GATEWAY_ADMIN_LISTEN: `127.0.0.1:${await freePort()}`,
  });
  const gateways = [await start("gateway", await gatewayEnv()), await start("gateway", await gatewayEnv())] as const;
  const adminOf = ({ current }: Restartable) => current.admin;
  const targets = { gateway: gateways.map(adminOf), "inventory-svc": services.map(adminOf) };
  const prometheus = await startPrometheus(targets, options);
  stack.defer(() => prometheus.stop());
  await until(() => prometheus.shows('count(up{job=~".+"} == 1) == 4'));
  const load = startLoad({ address: gateways[0].current.listen, keys: system.keys });
  stack.defer(() => load.stop());
  return { system, gateways, services, database, redis, links, orders, load, prometheus, targets };
}

async function urlOver({ port }: Link, database: DatabaseServer): Promise<string> {
  const url = new URL(await database.createDatabase());
  url.port = String(port);
  return url.href;
}

async function startOrders(stack: AsyncDisposableStack): Promise<Orders> {
  let requests = 0;
  const server = createServer((_request, response) => {
    requests += 1;
    const fails = orders.failEvery > 0 && requests % orders.failEvery === 0;
    response.writeHead(fails ? 500 : 200, { "content-type": "application/json" }).end(fails ? "{}" : "[]");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  stack.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  const orders: Orders = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, failEvery: 0 };
  return orders;
}
