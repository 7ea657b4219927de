#!/usr/bin/env node
import { ServerCredentials } from "@grpc/grpc-js";
import { asSet, startAdmin } from "../runtime/admin.ts";
import { databaseDefaults, durabilityWeaknesses, openDatabase } from "../runtime/database/open.ts";
import { createLogger } from "../runtime/log.ts";
import { runProcess, untilReady } from "../runtime/process.ts";
import { openTracing } from "../runtime/tracing.ts";
import { mutualTls } from "./access/credentials.ts";
import type { OnRefused } from "./access/role-interceptor.ts";
import { inventoryHelp, inventoryTls, readInventoryConfig } from "./config.ts";
import { createServiceMetrics } from "./metrics.ts";
import { inventoryHandlers } from "./rpc/handlers.ts";
import { createRpcServer } from "./server.ts";
import { startForgetting } from "./stock/adjustment-cleanup.ts";
import { GroupCommit } from "./stock/group-commit.ts";
import { StockStore } from "./stock/store.ts";

/** How long a connection past its age may finish its calls: longer than a gateway keeps to one stream of updates. */
const connectionGraceMs = 15_000;

await runProcess(inventoryHelp, async () => {
  const config = readInventoryConfig(process.env);
  const tracing = await openTracing("inventory-svc", process.env, (reason) =>
    log.warn({ reason }, "traces are not sent"),
  );
  const log = createLogger("inventory-svc", config.LOG_LEVEL, tracing.logFields);

  const metrics = createServiceMetrics(log);
  const db = openDatabase(config.INVENTORY_DATABASE_URL, {
    ...databaseDefaults,
    poolMax: config.INVENTORY_DATABASE_POOL,
    silenceTimeoutMs: config.INVENTORY_DATABASE_TIMEOUT_MS,
  });
  tracing.queries(db);
  const store = new StockStore(db, Date.now);
  const commits = new GroupCommit({
    write: metrics.measured((changes, more) =>
      tracing.together("commit", changes, (join) => store.write(changes, more && (() => join(more())))),
    ),
    maxBatch: config.INVENTORY_MAX_BATCH,
    maxQueued: config.INVENTORY_MAX_QUEUED,
    onTurn: metrics.onTurn,
    now: () => performance.now(),
  });
  let weaknesses: readonly string[] = [];
  metrics.expose({ db, store, commits, maxQueued: config.INVENTORY_MAX_QUEUED, weaknesses: () => weaknesses.length });

  const files = inventoryTls(config);
  const onRefused: OnRefused = (method, error) => metrics.onCall(method, 0, error.code, error);
  const credentials = files
    ? mutualTls({ files, roles: config.INVENTORY_TLS_ROLES ?? new Map(), log, onRefused })
    : ServerCredentials.createInsecure();

  let isLeaving = false;
  const draining = new AbortController();
  const server = createRpcServer({
    handlers: inventoryHandlers({ store, commits, draining: draining.signal, onCall: metrics.onCall, tracing }),
    credentials,
    maxConnectionAgeMs: config.INVENTORY_MAX_CONNECTION_AGE_MS,
    connectionGraceMs,
  });
  const listen = await asSet("INVENTORY_LISTEN", server.listen(config.INVENTORY_LISTEN));
  const admin = await asSet(
    "INVENTORY_ADMIN_LISTEN",
    startAdmin({
      listen: config.INVENTORY_ADMIN_LISTEN,
      metrics: metrics.registry,
      ready: async () => {
        if (isLeaving) throw new Error("draining");
        await store.ping();
      },
    }),
  );
  await untilReady(() => store.ping(), log);
  weaknesses = await durabilityWeaknesses(db);
  for (const weakness of weaknesses) {
    log.warn({ weakness }, "NOT DURABLE: an acknowledged update can be lost when the database server fails");
  }
  server.ready();
  const stopForgetting = startForgetting({
    store,
    now: Date.now,
    onError: (err) => log.warn({ err }, "old adjustments could not be forgotten; the next try is in a minute"),
  });

  return {
    log,
    drainDelaySeconds: config.DRAIN_DELAY_SECONDS,
    drainSeconds: config.DRAIN_SECONDS,
    addresses: { listen, admin: admin.address },
    leave: () => {
      isLeaving = true;
      server.notReady();
    },
    stop: async () => {
      draining.abort();
      await server.close((config.DRAIN_SECONDS - config.DRAIN_DELAY_SECONDS) * 1_000 * 0.8);
      await commits.drain();
      await stopForgetting();
      await admin.close();
      await db.destroy();
      await tracing.close();
    },
  };
});
