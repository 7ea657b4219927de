import { Router } from "express";
import type { Registry } from "prom-client";
import { databaseDefaults, openDatabase } from "../runtime/database/open.ts";
import { createLogger, type Logger } from "../runtime/log.ts";
import { untilReady } from "../runtime/process.ts";
import { noTracing, type Tracing } from "../runtime/tracing.ts";
import { Authenticator } from "./auth/authenticator.ts";
import { createKeyStore } from "./auth/key-store.ts";
import { readPepper } from "./auth/pepper.ts";
import { type GatewayConfig, inventoryTls } from "./config.ts";
import { clientAddressOf } from "./http/client-address.ts";
import type { FlatHeaders } from "./http/common-headers.ts";
import { askAhead, listInventory, updateInventory } from "./inventory/handlers.ts";
import { HeldVersions } from "./inventory/list/held-versions.ts";
import { StockList } from "./inventory/list/stock-list.ts";
import { createInventoryClient } from "./inventory/stock-client.ts";
import { admission } from "./limits/admission.ts";
import { banner, publishedBanRules } from "./limits/bans.ts";
import { MemoryWindows } from "./limits/memory-windows.ts";
import { windowsOf } from "./limits/plans.ts";
import { RefusalCounter } from "./limits/refusals.ts";
import { checkTimer, exposeState } from "./observability/gauges.ts";
import { createObserver, type Observer } from "./observability/requests.ts";
import { traceRequests } from "./observability/spans.ts";
import { openApiDocument } from "./openapi/document.ts";
import { docsPage } from "./openapi/page.ts";
import { deprecation } from "./passthrough/deprecation.ts";
import { passThrough } from "./passthrough/handler.ts";
import { aloneWith, overRedis } from "./redis/replicas.ts";
import { gateway } from "./routes.ts";
import { createTrafficStore } from "./usage/traffic.ts";
import { UsageRecorder } from "./usage/usage-recorder.ts";

// What the published package is imported for: `createGateway` and what makes its configuration.
export { SettingsError } from "../runtime/settings.ts";
export { type GatewayConfig, type GatewayEnv, readGatewayConfig } from "./config.ts";

/** Callers whose counts are remembered. Accounts have keys, so only operators make more of them. */
const maxAccounts = 1_000_000;
const maxAddresses = 100_000;

const usageIntervalMs = 30_000;

export interface Gateway {
  /** The public API; mount it below any path, before any body parser. */
  readonly router: Router;
  readonly metrics: Registry;
  /** The limit headers of an address, for what is answered outside the router. */
  readonly headersFor: (address: string) => FlatHeaders;
  /** Counts and logs what is answered outside the router. */
  readonly onMalformed: Observer["onMalformed"];
  /**
   * Resolves when it can serve: keys can be looked up, and the list is loaded. Until then the log says what is missing.
   * Rejects when it is closed before.
   */
  ready(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Constructs the whole gateway from its configuration.
 *
 * @param log a pino logger; by default JSON lines on standard output, from `LOG_LEVEL` on
 * @param now Unix milliseconds
 * @throws SettingsError when there is no pepper
 */
export function createGateway(
  config: GatewayConfig,
  log: Logger = createLogger("gateway", config.LOG_LEVEL),
  now: () => number = Date.now,
  tracing: Tracing = noTracing,
): Gateway {
  const closing = new AbortController();
  const observer = createObserver(log);
  const db = openDatabase(config.GATEWAY_DATABASE_URL, databaseDefaults);
  tracing.queries(db);
  const keys = createKeyStore(db, now);
  const traffic = createTrafficStore(db);
  const usage = new UsageRecorder({ store: keys, traffic, log, intervalMs: usageIntervalMs, now });
  const client = createInventoryClient({
    address: config.INVENTORY_ADDRESS,
    tls: inventoryTls(config),
    log,
    callTimeoutMs: config.INVENTORY_TIMEOUT_MS,
    loadTimeoutMs: config.LIST_TIMEOUT_MS,
    onCheck: checkTimer(observer.metrics),
    tracing,
  });
  const list = new StockList(client);
  exposeState(observer.metrics, { db, client, list, replicas: config.GATEWAY_REPLICAS });

  const banRules = {
    ...publishedBanRules,
    refusals: config.BAN_REFUSALS_PER_MINUTE,
    ladderMinutes: config.BAN_LADDER_MINUTES,
  };
  const memory = new MemoryWindows({ maxCallers: maxAccounts, replicas: config.GATEWAY_REPLICAS, now });
  const replicas =
    config.REDIS_URL === undefined
      ? aloneWith(memory)
      : overRedis({ redisUrl: config.REDIS_URL, memory, log, metrics: observer.metrics });
  const authenticator = new Authenticator({ store: observer.timed(keys), pepper: readPepper(config), now });
  replicas.listen((id) => authenticator.forget(id));
  const refusals = new RefusalCounter({
    tooMany: banRules.refusals,
    onTooMany: banner({
      store: keys,
      rules: banRules,
      onBan: (keyId, ban, isNew) => {
        authenticator.forget(keyId);
        if (!isNew) return;
        replicas.tell(keyId);
        observer.onBan();
        log.warn({ keyId, ...ban }, "key banned");
      },
      onError: (err) => log.error({ err }, "a ban could not be noted"),
      now,
    }),
    share: replicas.shareRefusals,
    now,
  });
  const entrance = admission({
    authenticator,
    onUse: (principal) => usage.used(principal),
    onLikely: askAhead(list),
    limiter: replicas.limiter,
    standing: (id, windows) => memory.peek(id, windows),
    guard: new MemoryWindows({ maxCallers: maxAddresses, replicas: 1, now }),
    guardPerMinute: config.ADDRESS_GUARD_PER_MINUTE,
    windowsOf: windowsOf(config.PLAN_LIMITS),
    refusals,
    onRefused: observer.onRefused,
    now,
  });
  const document = openApiDocument({
    servers: config.GATEWAY_SERVERS.map((url) => ({ url, description: "" })),
    plans: config.PLAN_LIMITS,
    banRules,
    deprecatedAt: config.PETS_DEPRECATED_AT,
    sunsetAt: config.PETS_SUNSET_AT,
    guardPerMinute: config.ADDRESS_GUARD_PER_MINUTE,
  });
  const timeoutMs = config.UPSTREAM_TIMEOUT_MS;

  const router = gateway({
    admission: entrance,
    docs: docsPage({ document, stallTimeoutMs: config.STALL_TIMEOUT_MS }),
    listInventory: listInventory({
      list,
      held: new HeldVersions(config.SLOW_READERS_MIB * 1024 * 1024),
      stallTimeoutMs: config.STALL_TIMEOUT_MS,
    }),
    updateInventory: updateInventory({ client, bodyTimeoutMs: config.BODY_TIMEOUT_MS }),
    getPet: passThrough({
      upstream: config.PETS_UPSTREAM_URL,
      name: "pets",
      path: (request) => `/pets/${request.params.petId}`,
      timeoutMs,
      clientTimeoutMs: config.STALL_TIMEOUT_MS,
    }),
    getOrders: passThrough({
      upstream: config.ORDERS_UPSTREAM_URL,
      name: "orders",
      path: () => "/store/orders",
      timeoutMs,
      clientTimeoutMs: config.STALL_TIMEOUT_MS,
    }),
    deprecation: deprecation({
      deprecatedAt: config.PETS_DEPRECATED_AT,
      sunsetAt: config.PETS_SUNSET_AT,
      documentationUrl: "../../docs/", // relative to /v1/pets/{petId}, wherever the router is mounted
      goneAfterSunset: config.PETS_GONE_AFTER_SUNSET,
      onUse: (accountId) => usage.deprecatedRouteUsed(accountId),
      now,
    }),
    clientAddress: clientAddressOf(config.TRUSTED_PROXIES),
    onDone: observer.onDone,
    onError: observer.onError,
    now,
  });

  return {
    router: tracing.isOn ? Router().use(traceRequests(tracing), router) : router,
    metrics: observer.metrics,
    headersFor: entrance.headersFor,
    onMalformed: observer.onMalformed,
    ready: () =>
      untilReady(
        async () => {
          await keys.ping();
          await list.current();
        },
        log,
        closing.signal,
      ),
    close: async () => {
      closing.abort(new Error("the gateway was closed"));
      client.close();
      refusals.close();
      replicas.close();
      await usage.close();
      await db.destroy();
    },
  };
}
