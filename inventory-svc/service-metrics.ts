/** Metrics and the log of calls. */
import type { Knex } from "knex";
import type { Registry } from "prom-client";
import { InventoryServiceService } from "../proto/gen/petstore/inventory/v1/inventory.ts";
import { exposePool } from "../runtime/database/pool-metrics.ts";
import type { DatabaseRisks } from "../runtime/database/risks.ts";
import { ErrorLog } from "../runtime/error-log.ts";
import type { Logger } from "../runtime/log.ts";
import {
  counter,
  createRegistry,
  Distribution,
  durationBoundsSeconds,
  gauge,
  type Series,
} from "../runtime/metrics.ts";
import { isOurFault } from "./rpc/rpc-error.ts";
import { logLevel, type OnCall } from "./rpc/served-calls.ts";
import type { GroupCommit, GroupCommitOptions } from "./stock/group-commit.ts";
import type { StockStore } from "./stock/stock-store.ts";

const sizeBounds = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000];

export interface ServiceMetrics {
  readonly registry: Registry;
  /** Counts and logs calls. */
  readonly onCall: OnCall;
  /** Measures how long groups of changes wait for their transaction. */
  readonly onDequeued: GroupCommitOptions["onDequeued"];
  /** Measures write transactions. */
  readonly onWritten: GroupCommitOptions["onWritten"];
  /** Adds gauges of the database, the store and the queue to the registry. Each scrape reads them. */
  readonly expose: (parts: ServiceParts) => void;
  /** Logs the errors that are only counted so far. */
  readonly close: () => void;
}

interface ServiceParts {
  readonly db: Knex;
  readonly store: Pick<StockStore, "lastRevision" | "changesByKind">;
  readonly commits: Pick<GroupCommit, "queued">;
  readonly maxQueued: number;
  readonly risks: DatabaseRisks;
}

export function createServiceMetrics(log: Logger): ServiceMetrics {
  const registry = createRegistry();
  const distribution = (name: string, help: string, bounds: readonly number[] = durationBoundsSeconds) =>
    new Distribution({ name: `inventory_${name}`, help, registry }, bounds);
  const errors = new ErrorLog(log, "call");
  const calls = distribution(
    "rpc_duration_seconds",
    "gRPC calls, and each update or check on a stream, by method and status code",
  );
  const waits = distribution("commit_wait_seconds", "Waits of groups until a transaction takes them").series();
  const sizes = distribution("commit_changes", "Changes in a transaction", sizeBounds).series();
  const commits = distribution("commit_duration_seconds", "Write transactions, with their retries");
  const [committed, failed] = [commits.series({ outcome: "committed" }), commits.series({ outcome: "failed" })];
  // A set of series for each method of the contract. All other paths, which callers may choose, share one.
  const known = Object.values(InventoryServiceService).map(({ path }) => {
    return [path as string, { method: path.slice(path.lastIndexOf("/") + 1), byCode: [] as Series[] }] as const;
  });
  const byPath = new Map(known);
  const other = { method: "other", byCode: [] as Series[] };

  return {
    registry,
    onCall: (path, durationMs, code, error) => {
      const { method, byCode } = byPath.get(path) ?? other;
      byCode[code] ??= calls.series({ method, code });
      byCode[code].observe(durationMs / 1_000);
      const level = logLevel(error);
      if (!log.isLevelEnabled(level)) return;
      const fields = {
        method: path,
        durationMs: Math.round(durationMs * 100) / 100,
        code,
        reason: error?.errorReason,
        // The stack of a refusal tells nothing.
        err: error && (isOurFault(code) ? (error.cause ?? error) : { type: error.name, message: error.message }),
      };
      if (level === "error") errors.add(`${path} ${error?.errorReason}`, fields);
      else log[level](fields, "call");
    },
    onDequeued: (waitedMs) => waits.observe(waitedMs / 1_000),
    onWritten: (changes, durationMs, isCommitted) => {
      sizes.observe(changes);
      (isCommitted ? committed : failed).observe(durationMs / 1_000);
    },
    expose: ({ db, risks, store, commits, maxQueued }) => {
      const show = (name: string, help: string, read: () => number) =>
        gauge({ name: `inventory_${name}`, help, registry }, read);
      exposePool(registry, "inventory", db);
      risks.expose(registry, "inventory");
      show("revision", "Newest revision of the stock that this process has seen", () => Number(store.lastRevision));
      const help = "Changes of the stock that this process has made, by kind as in the ledger";
      counter({ name: "inventory_changes_total", help, registry, labelNames: ["kind"] }, () =>
        Array.from(store.changesByKind, ([kind, count]) => [{ kind }, count] as const),
      );
      show("commit_queued", "Changes that wait for a transaction", () => commits.queued);
      show("commit_queued_max", "Changes that may wait for a transaction", () => maxQueued);
    },
    close: () => errors.close(),
  };
}
