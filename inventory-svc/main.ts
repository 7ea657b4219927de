#!/usr/bin/env node
/** inventory-svc as a process: the stock, the gRPC server over it, the operators' port, and a stop that drains. */
import "../runtime/node-version.ts";
import { ServerCredentials } from "@grpc/grpc-js";
import { blamingSetting, startAdmin } from "../runtime/admin.ts";
import { certificateGauges } from "../runtime/certificate-metrics.ts";
import { createCommand, runCommand } from "../runtime/command-line.ts";
import { blamingDatabase } from "../runtime/database/faults.ts";
import { databaseDefaults, openDatabase } from "../runtime/database/open.ts";
import { traceQueries } from "../runtime/database/query-spans.ts";
import { DatabaseRisks } from "../runtime/database/risks.ts";
import { createLogger } from "../runtime/log.ts";
import { LogOutput } from "../runtime/log-output.ts";
import { type RunningProcess, runProcess, untilReady } from "../runtime/process.ts";
import { startTracing } from "../runtime/tracing.ts";
import { mutualTls, type OnDenied } from "./access/credentials.ts";
import { actorFinder } from "./access/identities.ts";
import { inventorySettings, readInventoryConfig, serviceTls, stockDatabaseSetting } from "./config.ts";
import { createRpcServer } from "./grpc-server.ts";
import { inventoryHandlers } from "./rpc/handlers.ts";
import { connectionGraceMs } from "./rpc/served-calls.ts";
import { entriesPerMessage } from "./rpc/wire.ts";
import { createServiceMetrics } from "./service-metrics.ts";
import { ChangeFeed } from "./stock/change-feed.ts";
import { ledgerKeptMsOf, startCleanup } from "./stock/cleanup.ts";
import { GroupCommit } from "./stock/group-commit.ts";
import { ListFeed } from "./stock/list-feed.ts";
import { Retention } from "./stock/retention.ts";
import { StockHistory } from "./stock/stock-history.ts";
import { StockStore } from "./stock/stock-store.ts";

const command = createCommand(
  "inventory-svc",
  "inventory-svc: the stock of the petstore over gRPC.",
  inventorySettings,
);
await runCommand(command.action(() => runProcess(start)));

async function start(): Promise<RunningProcess> {
  const config = readInventoryConfig(process.env);
  const output = new LogOutput();
  const log = createLogger("inventory-svc", config.LOG_LEVEL, output);
  const onTracingProblem = (reason: string) => log.warn({ reason }, "spans cannot be sent");
  const tracing = await startTracing("inventory-svc", process.env, onTracingProblem);

  const metrics = createServiceMetrics(log);
  output.expose(metrics.registry, "inventory");
  const risks = new DatabaseRisks(log, stockDatabaseSetting);
  const db = await blamingDatabase(stockDatabaseSetting, async () =>
    openDatabase(config.INVENTORY_DATABASE_URL, {
      ...databaseDefaults,
      onConnected: risks.see,
      poolMax: config.INVENTORY_DATABASE_POOL,
      silenceTimeoutMs: config.INVENTORY_DATABASE_TIMEOUT_MS,
    }),
  );
  const stopWatching = risks.watch(db);
  if (tracing.isOn) traceQueries(db);
  const keepsHistory = config.INVENTORY_HISTORY_DAYS > 0;
  const store = new StockStore(db, keepsHistory);
  const commits = new GroupCommit({
    store,
    maxBatch: config.INVENTORY_MAX_BATCH,
    maxQueued: config.INVENTORY_MAX_QUEUED,
    onDequeued: metrics.onDequeued,
    onWritten: metrics.onWritten,
  });
  const feed = new ChangeFeed((from) => store.changesAfter(from, entriesPerMessage));
  metrics.expose({
    db,
    store,
    commits,
    maxQueued: config.INVENTORY_MAX_QUEUED,
    risks,
  });

  const files = serviceTls(config);
  const onDenied: OnDenied = (method, error) => metrics.onCall(method, 0, error.code, error);
  const credentials = files
    ? mutualTls({
        files,
        roles: config.INVENTORY_TLS_ROLES ?? new Map(),
        log,
        onDenied,
        onCertificate: certificateGauges(metrics.registry),
      })
    : ServerCredentials.createInsecure();

  let phase: "starting" | "serving" | "draining" = "starting";
  const draining = new AbortController();
  const server = createRpcServer({
    handlers: inventoryHandlers({
      store,
      history: new StockHistory(db),
      keepsHistory,
      actorOf: actorFinder(config.INVENTORY_TLS_ROLES ?? new Map()),
      commits,
      feed,
      lists: new ListFeed(store, entriesPerMessage),
      draining: draining.signal,
      onCall: metrics.onCall,
    }),
    credentials,
    maxConnectionAgeMs: config.INVENTORY_MAX_CONNECTION_AGE_MS,
    connectionGraceMs,
  });
  const admin = await blamingSetting(
    "INVENTORY_ADMIN_LISTEN",
    startAdmin({
      listen: config.INVENTORY_ADMIN_LISTEN,
      metrics: metrics.registry,
      log,
      checkReady: async () => {
        if (phase === "draining") throw new Error(phase);
        await blamingDatabase(stockDatabaseSetting, () => store.ping());
        // Not ready before `join`: a stop before it does not wait until load balancers have noticed.
        if (phase === "starting") throw new Error(phase);
        return risks.check();
      },
    }),
  );
  const listen = await blamingSetting("INVENTORY_LISTEN", server.listen(config.INVENTORY_LISTEN));
  let stopCleanup: (() => Promise<void>) | undefined;

  return {
    log,
    drainDelaySeconds: config.DRAIN_DELAY_SECONDS,
    drainSeconds: config.DRAIN_SECONDS,
    addresses: { listen, admin: admin.address },
    untilReady: () => untilReady(() => blamingDatabase(stockDatabaseSetting, () => store.ping()), log, draining.signal),
    join: () => {
      phase = "serving";
      server.setServing(true);
      stopCleanup = startCleanup({
        retention: new Retention(db),
        ledgerKeptMs: ledgerKeptMsOf(config.INVENTORY_HISTORY_DAYS),
        onError: (err) => log.warn({ err }, "a part of the clean-up has failed; the next attempt is in a minute"),
        onWait: () =>
          log.warn(
            "nothing old is deleted for 8 hours: by the clock of the database no service has run for more than 2 hours. If that is so, all is well; if the clock was set forward, set it right within these 8 hours",
          ),
      });
    },
    leave: () => {
      phase = "draining";
      server.setServing(false);
    },
    stop: async () => {
      draining.abort();
      await server.close((config.DRAIN_SECONDS - config.DRAIN_DELAY_SECONDS) * 1_000 * 0.8);
      await commits.drain();
      await stopCleanup?.();
      stopWatching();
      await admin.close();
      await db.destroy();
      metrics.close();
      await tracing.close();
    },
  };
}
