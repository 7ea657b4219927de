/** Constructs the gateway from its configuration: the stock, the keys, the limits, then the routes over them. */
import "../runtime/node-version.ts";
import type { IncomingMessage } from "node:http";
import { Router } from "express";
import type { Registry } from "prom-client";
import { certificateGauges } from "../runtime/certificate-metrics.ts";
import { blamingDatabase } from "../runtime/database/faults.ts";
import { createLogger, type Logger } from "../runtime/log.ts";
import { untilReady } from "../runtime/process.ts";
import { rotateKey } from "./accounts/keys/key-rotation.ts";
import { checkPeppers, readPeppers } from "./accounts/keys/pepper.ts";
import { type GatewayConfig, inventoryTls, keyDatabaseSetting } from "./config.ts";
import { deprecationsOf } from "./deprecation-settings.ts";
import { clientAddressFinder } from "./http/client-address.ts";
import { contextOf, type HeaderList } from "./http/request-context.ts";
import { PinnedBodies } from "./inventory/list/pinned-bodies.ts";
import { StockList } from "./inventory/list/stock-list.ts";
import { LongPolls } from "./inventory/reads/long-polls.ts";
import { blamingService } from "./inventory/service-fault.ts";
import { openStockClient } from "./inventory/stock-client.ts";
import { type GatewayBase, openKeys, openLimits } from "./keys-and-limits.ts";
import { exposeGauges } from "./observability/gauges.ts";
import { traceRequest } from "./observability/request-spans.ts";
import { createObserver, type Observer } from "./observability/requests.ts";
import { openApiDocument } from "./openapi/document.ts";
import { accountPage } from "./pages/account-page.ts";
import { type DocsPageOptions, docsPage } from "./pages/docs-page.ts";
import { passThrough } from "./passthrough/handler.ts";
import { createRouter, deprecationHeaderFinder } from "./router.ts";
import { routeTable, withDeprecations } from "./routes.ts";

// What the published package is imported for: `createGateway` and what makes its configuration.
export { SettingsError } from "../runtime/settings.ts";
export { type GatewayConfig, type GatewayEnv, readGatewayConfig } from "./config.ts";

export interface GatewayOptions {
  /** A pino logger; by default JSON lines on standard output, from `LOG_LEVEL` on. */
  readonly log?: Logger;
  /** Unix milliseconds. */
  readonly now?: () => number;
  /** Whether requests and queries get spans: set it where OpenTelemetry's SDK is registered. */
  readonly isTraced?: boolean;
}

export interface Gateway {
  /** The public API; mount it below any path, before any body parser. */
  readonly router: Router;
  readonly metrics: Registry;
  /**
   * The headers of answers that are made outside the router: the limits of the address and, for a parsed request, the
   * deprecation of its operation.
   */
  readonly headersOutsideRouter: (address: string, request?: IncomingMessage) => HeaderList;
  /** Counts and logs an invalid request, which is answered outside the router. */
  readonly onMalformed: Observer["onMalformed"];
  /**
   * Resolves when the gateway can serve: Redis has answered or is known to be away, keys can be looked up, and the list
   * is loaded. Until then the log says what is missing. Rejects when the gateway is closed before, and with a
   * SettingsError for a pepper that is not that of the keys.
   */
  untilReady(): Promise<void>;
  /**
   * Returns the risks: settings and tables of the keys' database by which changes of keys can be lost, or old keys be
   * read, each with what mends it.
   *
   * @throws OperatorError when its URL leads to several servers that take writes; this gateway is then not ready
   */
  databaseRisks(): readonly string[];
  /**
   * Ends long waits when a stop begins. Requests that wait for a change are answered, and no more of them wait.
   * Updates with an Idempotency-Key are repeated for at most `INVENTORY_TIMEOUT_MS` more.
   */
  endWaits(): void;
  /**
   * Writes the counts of use that are only in memory. A stop calls it early: a client that does not take its answer can
   * make the stop end by force before it gets to `close`. Never rejects.
   */
  saveUse(): Promise<void>;
  close(): Promise<void>;
}

/**
 * @throws SettingsError for a missing pepper, two equal ones, or the announced end of an unknown operation; Error that
 * says what is wrong with the TLS files
 */
export function createGateway(config: GatewayConfig, options: GatewayOptions = {}): Gateway {
  const peppers = readPeppers(config);
  const log = options.log ?? createLogger("gateway", config.LOG_LEVEL);
  const { now = Date.now, isTraced = false } = options;
  const base: GatewayBase = { config, log, now, isTraced, observer: createObserver(log) };
  const { observer } = base;
  const closing = new AbortController();

  const { stock, list } = openStock(base); // first: it throws for unusable TLS files, and nothing is open yet
  const keys = openKeys(base, peppers);
  const limits = openLimits(base, keys);
  const longPolls = new LongPolls({ list, max: config.MAX_HELD_REQUESTS, admission: limits.admission });
  exposeGauges(observer.metrics, { db: keys.db, stock, list, longPolls, gatewayCount: config.GATEWAY_REPLICAS });

  const deprecations = deprecationsOf(config);
  const upstream = {
    timeoutMs: config.UPSTREAM_TIMEOUT_MS,
    clientTimeoutMs: config.STALL_TIMEOUT_MS,
    admission: limits.admission,
  };
  const pages = {
    document: openApiDocument({
      servers: config.GATEWAY_SERVERS,
      plans: config.PLAN_LIMITS,
      banRules: limits.banRules,
      addressGuardPerMinute: config.ADDRESS_GUARD_PER_MINUTE,
      keyedUpdatesPerDay: config.KEYED_UPDATES_PER_DAY,
      hasKeyRotation: config.KEY_ROTATION,
      deprecations,
    }),
    admit: (response) => limits.admission.admitDocs(response.req, contextOf(response)),
  } satisfies DocsPageOptions;
  const operations = routeTable({
    stock,
    list,
    pinnedBodies: new PinnedBodies(config.SLOW_READERS_MIB * 1024 * 1024),
    longPolls,
    admission: limits.admission,
    keyedUpdateGuard: limits.guards.keyedUpdates,
    allowanceMs: config.STALL_TIMEOUT_MS,
    bodyTimeoutMs: config.BODY_TIMEOUT_MS,
    pets: passThrough({ name: "pets", upstream: config.PETS_UPSTREAM_URL, ...upstream }),
    orders: passThrough({ name: "orders", upstream: config.ORDERS_UPSTREAM_URL, ...upstream }),
    usage: keys.usage,
    keyRotation: config.KEY_ROTATION
      ? {
          admission: limits.admission,
          rotate: (rotation) => rotateKey(keys.db, rotation),
          guard: limits.guards.rotations,
          onRotated: limits.onKeyChange,
          pepper: peppers[0],
          keyEnv: config.GATEWAY_KEY_ENV,
          bodyTimeoutMs: config.BODY_TIMEOUT_MS,
        }
      : undefined,
    now,
  });
  const routes = withDeprecations(operations, deprecations);
  const router = createRouter({
    routes,
    admission: limits.admission,
    pages: Router().use(docsPage(pages), accountPage(pages)),
    clientAddress: clientAddressFinder(config.TRUSTED_PROXIES),
    onDeprecatedUse: (accountId, operation) => keys.usage.deprecatedUsed(accountId, operation),
    onDone: observer.onDone,
    onError: observer.onError,
    now,
  });

  const deprecationOf = deprecationHeaderFinder(routes);

  return {
    router: isTraced ? Router().use(traceRequest, router) : router,
    metrics: observer.metrics,
    headersOutsideRouter: (address, request) => [
      ...limits.admission.limitHeadersOf(address),
      ...(request ? deprecationOf(request) : []),
    ],
    onMalformed: observer.onMalformed,
    untilReady: async () => {
      await limits.connectionTried;
      const checkKeys = async () => {
        await keys.store.ping();
        const keysWithout = await checkPeppers(peppers, keys.store);
        if (keysWithout > 0)
          log.warn(
            { keys: keysWithout },
            "valid keys get 401: they were made under a pepper that is neither KEY_PEPPER nor KEY_PEPPER_OLD",
          );
      };
      await untilReady(() => blamingDatabase(keyDatabaseSetting, checkKeys), log, closing.signal);
      await untilReady(() => blamingService(() => list.readFresh()), log, closing.signal);
    },
    databaseRisks: () => keys.risks.check(),
    endWaits: () => {
      longPolls.close();
      stock.endRepeats();
    },
    saveUse: () => keys.usage.save(),
    close: async () => {
      longPolls.close();
      closing.abort(new Error("the gateway was closed"));
      stock.close();
      limits.close();
      await keys.close();
      observer.close();
    },
  };
}

/** The stock: the client of the inventory service, and the list that it keeps up to date. */
function openStock({ config, log, observer }: GatewayBase) {
  const tls = inventoryTls(config);
  const stock = openStockClient({
    address: config.INVENTORY_ADDRESS,
    tls,
    log,
    onCertificate: tls && certificateGauges(observer.metrics),
    callTimeoutMs: config.INVENTORY_TIMEOUT_MS,
    keyedTimeoutMs: config.KEYED_UPDATE_TIMEOUT_MS,
    onCheck: observer.onCheck,
  });
  return { stock, list: new StockList(stock, config.INVENTORY_TIMEOUT_MS) };
}
