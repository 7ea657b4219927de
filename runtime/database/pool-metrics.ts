/** Metrics of a database's connections. */
import type { Knex } from "knex";
import type { Registry } from "prom-client";
import { gauge } from "../metrics.ts";
import { poolUse } from "./knex-internals.ts";

/** Adds gauges for the connections of a database. @param tier begins their names: `gateway`, `inventory` */
export function exposePool(registry: Registry, tier: string, db: Knex): void {
  const connections = { name: `${tier}_database_connections`, help: "Connections to the database", registry };
  gauge({ ...connections, labelNames: ["state"] }, () => {
    const { used, free } = poolUse(db);
    return [
      [{ state: "used" }, used],
      [{ state: "free" }, free],
    ];
  });
  const max = { name: `${tier}_database_connections_max`, help: "Maximum connections to the database", registry };
  gauge(max, () => poolUse(db).max);
  const waiting = {
    name: `${tier}_database_waiting`,
    help: "Callers that wait for a connection to the database",
    registry,
  };
  gauge(waiting, () => poolUse(db).waiting);
}
