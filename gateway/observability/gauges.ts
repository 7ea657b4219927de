/** Metrics of the parts of the gateway. */
import type { Knex } from "knex";
import type { Registry } from "prom-client";
import { exposePool } from "../../runtime/database/pool-metrics.ts";
import { counter, gauge } from "../../runtime/metrics.ts";
import { countEntries } from "../inventory/list/chunks.ts";
import type { StockList } from "../inventory/list/stock-list.ts";
import type { LongPolls } from "../inventory/reads/long-polls.ts";
import type { StockClient } from "../inventory/stock-client.ts";

export interface GaugedParts {
  readonly db: Knex;
  readonly stock: Pick<StockClient, "changesInFlight" | "updatesUnknown">;
  readonly list: Pick<StockList, "last">;
  readonly longPolls: Pick<LongPolls, "count">;
  /** Gateways that share the limits, as configured. */
  readonly gatewayCount: number;
}

/** Shows how the parts of the gateway stand: values that they keep anyway, read when they are scraped. */
export function exposeGauges(registry: Registry, { db, stock, list, longPolls, gatewayCount }: GaugedParts): void {
  exposePool(registry, "gateway", db);
  gauge(
    { name: "gateway_replicas", help: "Gateways that share the limits, as configured", registry },
    () => gatewayCount,
  );

  const ofList = (name: string, help: string, read: (last: NonNullable<StockList["last"]>) => number) =>
    gauge({ name: `gateway_list_${name}`, help, registry }, () => (list.last ? read(list.last) : 0));
  ofList("revision", "Revision of the list", ({ snapshot }) => Number(snapshot.revision));
  ofList(
    "checked_timestamp_seconds",
    "When the last check for changes ended",
    ({ checkedAtMs }) => checkedAtMs / 1_000,
  );
  ofList("chunks", "Chunks of the list", ({ snapshot }) => snapshot.chunks.length);
  ofList("entries", "Entries of the list", ({ snapshot }) => countEntries(snapshot.chunks));
  ofList("bytes", "Bytes of the list's JSON", ({ snapshot }) => sum(snapshot.chunks, ({ json }) => json.length));

  const held = { name: "gateway_held_requests", help: "Requests that wait for a change", registry };
  gauge(held, () => longPolls.count);
  const inFlight = { name: "gateway_updates_in_flight", help: "Updates and adjustments in an attempt", registry };
  gauge(inFlight, () => stock.changesInFlight);
  const help = "Updates of which it is not known whether they happened";
  counter({ name: "gateway_updates_unknown_total", help, registry }, () => stock.updatesUnknown);
}

function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}
