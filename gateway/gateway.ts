/** Constructs the gateway from its configuration: the keys, the limits, the stock, then the routes over them. */
import { Router } from "express";
import { blamingDatabase } from "../runtime/database/faults.ts";
import { databaseDefaults, openDatabase } from "../runtime/database/open.ts";
import { traceQueries } from "../runtime/database/query-spans.ts";
import { DatabaseRisks } from "../runtime/database/risks.ts";
import { createLogger } from "../runtime/log.ts";
import { untilReady } from "../runtime/process.ts";
import { accountPage } from "./account-page/page.ts";
import { Authenticator } from "./auth/authenticator.ts";
import { createKeyStore } from "./auth/key-store.ts";
import { readPepper } from "./auth/pepper.ts";
import { type GatewayConfig, inventoryTls, keyDatabaseSetting } from "./config.ts";
import type { Gateway, GatewayOptions } from "./embedding.ts";
import { clientAddressOf } from "./http/client-address.ts";
import { contextOf } from "./http/request-context.ts";
import { HeldRequests } from "./inventory/held-requests.ts";
import { HeldVersions } from "./inventory/list/held-versions.ts";
import { StockList } from "./inventory/list/stock-list.ts";
import { blamingService } from "./inventory/service-fault.ts";
import { openStockClient } from "./inventory/stock-client.ts";
import { createAdmission } from "./limits/admission.ts";
import { type BanRules, createBanHandler, publishedBanRules } from "./limits/bans.ts";
import { MemoryWindows } from "./limits/memory-windows.ts";
import { windowsFor } from "./limits/plan-windows.ts";
import { RefusalCounter } from "./limits/refusals.ts";
import { checkTimer, exposeGauges } from "./observability/gauges.ts";
import { createObserver, type Observer } from "./observability/requests.ts";
import { traceRequest } from "./observability/spans.ts";
import { openApiDocument } from "./openapi/document.ts";
import { type DocsPageOptions, docsPage } from "./openapi/page.ts";
import { deprecation } from "./passthrough/deprecation.ts";
import { passThrough } from "./passthrough/handler.ts";
import { redisReplicas, standaloneReplica } from "./redis/replicas.ts";
import { createRouter } from "./router.ts";
import { routeTable } from "./routes.ts";
import { UsageRecorder } from "./usage/recorder.ts";
import { createUsageStore } from "./usage/store.ts";

// What the published package is imported for: `createGateway` and what makes its configuration.
export { SettingsError } from "../runtime/settings.ts";
export { type GatewayConfig, type GatewayEnv, readGatewayConfig } from "./config.ts";
export type { Gateway, GatewayOptions } from "./embedding.ts";

/** @throws SettingsError when there is no pepper; Error that says what is wrong with the TLS files */
export function createGateway(config: GatewayConfig, options: GatewayOptions = {}): Gateway {
  const pepper = readPepper(config);
  const log = options.log ?? createLogger("gateway", config.LOG_LEVEL);
  const { now = Date.now, isTraced = false } = options;
  const base: Base = { config, log, now, isTraced, observer: createObserver(log) };
  const { observer } = base;
  const closing = new AbortController();

  const { stock, list } = openStock(base); // first, because TLS files that cannot be used are an error
  const keys = openKeys(base, pepper);
  const limits = openLimits(base, keys);
  const waits = new HeldRequests({ list, max: config.MAX_HELD_REQUESTS, admission: limits.admission });
  exposeGauges(observer.metrics, { db: keys.db, stock, list, waits, replicas: config.GATEWAY_REPLICAS });

  const deprecations = {
    getPet: deprecation({
      deprecatedAt: config.PETS_DEPRECATED_AT,
      sunsetAt: config.PETS_SUNSET_AT,
      goneAfterSunset: config.PETS_GONE_AFTER_SUNSET,
      documentationUrl: "../../docs/", // relative to /v1/pets/{petId}, wherever the router is mounted
    }),
  };
  const upstream = { timeoutMs: config.UPSTREAM_TIMEOUT_MS, clientTimeoutMs: config.STALL_TIMEOUT_MS };
  const pages = {
    document: openApiDocument({
      servers: config.GATEWAY_SERVERS,
      plans: config.PLAN_LIMITS,
      banRules: limits.banRules,
      guardPerMinute: config.ADDRESS_GUARD_PER_MINUTE,
      deprecations,
    }),
    admit: (response) => limits.admission.admitDocs(contextOf(response)),
    stallTimeoutMs: config.STALL_TIMEOUT_MS,
  } satisfies DocsPageOptions;
  const router = createRouter({
    routes: routeTable({
      stock,
      list,
      held: new HeldVersions(config.SLOW_READERS_MIB * 1024 * 1024),
      waits,
      stallTimeoutMs: config.STALL_TIMEOUT_MS,
      bodyTimeoutMs: config.BODY_TIMEOUT_MS,
      pets: passThrough({ name: "pets", upstream: config.PETS_UPSTREAM_URL, ...upstream }),
      orders: passThrough({ name: "orders", upstream: config.ORDERS_UPSTREAM_URL, ...upstream }),
      deprecations,
      usage: keys.usage,
      now,
    }),
    admission: limits.admission,
    docs: Router().use(docsPage(pages), accountPage({ ...pages, isRotationOn: false })),
    clientAddress: clientAddressOf(config.TRUSTED_PROXIES),
    onDeprecatedUse: (accountId, operation) => keys.usage.deprecatedRouteUsed(accountId, operation),
    onDone: observer.onDone,
    onError: observer.onError,
    now,
  });

  return {
    router: isTraced ? Router().use(traceRequest, router) : router,
    metrics: observer.metrics,
    headersFor: limits.admission.headersFor,
    onMalformed: observer.onMalformed,
    ready: () =>
      untilReady(
        async () => {
          await blamingDatabase(keyDatabaseSetting, () => keys.store.ping());
          await blamingService(() => list.current());
        },
        log,
        closing.signal,
      ),
    get risks() {
      return keys.risks.current;
    },
    endWaits: () => waits.close(),
    close: async () => {
      waits.close();
      closing.abort(new Error("the gateway was closed"));
      stock.close();
      limits.close();
      await keys.close();
      observer.close();
    },
  };
}

/** What every part of the gateway uses. */
interface Base extends Required<GatewayOptions> {
  readonly config: GatewayConfig;
  readonly observer: Observer;
}

const usageIntervalMs = 30_000;

/** Accounts and keys: the database, the look-up of keys, and the record of their use. */
function openKeys({ config, log, now, isTraced, observer }: Base, pepper: string) {
  const risks = new DatabaseRisks(log);
  const db = openDatabase(config.GATEWAY_DATABASE_URL, { ...databaseDefaults, onConnected: risks.see });
  risks.expose(observer.metrics, "gateway");
  const stopWatching = risks.watch(db);
  if (isTraced) traceQueries(db);
  const store = createKeyStore(db, now);
  const usage = new UsageRecorder({ store: createUsageStore(db), log, intervalMs: usageIntervalMs, now });
  const authenticator = new Authenticator({ store: observer.timed(store), pepper, now });
  return {
    db,
    risks,
    store,
    usage,
    authenticator,
    close: async () => {
      stopWatching();
      await usage.close();
      await db.destroy();
    },
  };
}

/** Callers whose counts are remembered. Accounts have keys, so only operators make more of them. */
const maxAccounts = 1_000_000;

/** Admission: windows, refusals and bans, shared with the other replicas over Redis where there is one. */
function openLimits({ config, log, now, observer }: Base, keys: ReturnType<typeof openKeys>) {
  const banRules: BanRules = {
    ...publishedBanRules,
    refusals: config.BAN_REFUSALS_PER_MINUTE,
    ladderMinutes: config.BAN_LADDER_MINUTES,
  };
  const memory = new MemoryWindows({ maxCallers: maxAccounts, replicas: config.GATEWAY_REPLICAS, now });
  const replicas =
    config.REDIS_URL === undefined
      ? standaloneReplica(memory)
      : redisReplicas({ redisUrl: config.REDIS_URL, memory, log, metrics: observer.metrics });
  replicas.onNotice((id) => keys.authenticator.forget(id));
  const refusals = new RefusalCounter({
    tooMany: banRules.refusals,
    onTooMany: createBanHandler({
      store: keys.store,
      rules: banRules,
      onBan: (keyId, ban, isNew) => {
        keys.authenticator.forget(keyId);
        if (!isNew) return;
        replicas.notify(keyId);
        observer.onBan();
        log.warn({ keyId, ...ban }, "key banned");
      },
      onError: (err) => log.error({ err }, "a ban could not be stored"),
      now,
    }),
    share: replicas.shareRefusals,
    now,
  });
  const admission = createAdmission({
    authenticator: keys.authenticator,
    onUse: (principal, use) => keys.usage.used(principal, use),
    limiter: replicas.limiter,
    currentLimits: (id, windows) => memory.currentLimits(id, windows),
    accountGuard: replicas.accountGuard,
    guardPerMinute: config.ADDRESS_GUARD_PER_MINUTE,
    windowsFor: windowsFor(config.PLAN_LIMITS),
    refusals,
    onRefused: observer.onRefused,
    now,
  });
  return {
    banRules,
    admission,
    close: () => {
      refusals.close();
      replicas.close();
    },
  };
}

/** The stock: the client of the inventory service, and the list that it keeps up to date. */
function openStock({ config, log, observer }: Base) {
  const stock = openStockClient({
    address: config.INVENTORY_ADDRESS,
    tls: inventoryTls(config),
    log,
    callTimeoutMs: config.INVENTORY_TIMEOUT_MS,
    loadTimeoutMs: config.LIST_TIMEOUT_MS,
    onCheck: checkTimer(observer.metrics),
  });
  return { stock, list: new StockList(stock, config.INVENTORY_TIMEOUT_MS) };
}
