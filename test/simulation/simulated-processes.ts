/** The processes of a run: gateways and services as their composition roots make them, without ports and settings. */
import { setTimeout } from "node:timers/promises";
import { readGatewayConfig } from "../../gateway/config.ts";
import { createGateway } from "../../gateway/gateway.ts";
import { proxyTest } from "../../gateway/http/client-address.ts";
import { createPublicServer } from "../../gateway/http/server.ts";
import { actorFinder } from "../../inventory-svc/access/identities.ts";
import { inventoryHandlers } from "../../inventory-svc/rpc/handlers.ts";
import { connectionGraceMs } from "../../inventory-svc/rpc/served-calls.ts";
import { entriesPerMessage } from "../../inventory-svc/rpc/wire.ts";
import { ChangeFeed } from "../../inventory-svc/stock/change-feed.ts";
import { ledgerKeptMsOf, startCleanup } from "../../inventory-svc/stock/cleanup.ts";
import { GroupCommit } from "../../inventory-svc/stock/group-commit.ts";
import { ListFeed } from "../../inventory-svc/stock/list-feed.ts";
import { Retention } from "../../inventory-svc/stock/retention.ts";
import { StockHistory } from "../../inventory-svc/stock/stock-history.ts";
import { StockStore } from "../../inventory-svc/stock/stock-store.ts";
import { databaseDefaults, openDatabase } from "../../runtime/database/open.ts";
import type { Logger } from "../../runtime/log.ts";
import { untilReady } from "../../runtime/process.ts";
import { serveHttp } from "./http-server.ts";
import { RpcServer } from "./rpc-server.ts";
import type { Network } from "./virtual-network.ts";
import { Host, note, nowMs, runIn } from "./virtual-time.ts";

export interface SimulatedProcess {
  readonly host: Host;
  /** Whether balancers send it requests. */
  isReady: boolean;
  /** When it has begun to leave. */
  leavesMs?: number;
  /** Drains and ends it, as SIGTERM does. @returns what it leaves behind: the other ends of connections, and work */
  stop(): Promise<readonly string[]>;
}

/** More than a caller sends while the faults last. */
export const keyedUpdatesPerDay = 600;

/** Requests without a valid key that an address may send in a minute. */
export const keylessPerMinute = 20;

/** How long a process serves after it has said that it leaves. */
const drainDelayMs = 2_000;

/** Notes errors of the log, which belong to what a run did. */
function logOf(host: Host): Logger {
  const quiet = () => {};
  const error = (fields: object, text: string) => {
    const { err } = fields as { err?: Error };
    note(`${host.name} log: ${text} ${err?.message ?? ""}`);
  };
  const log = { debug: quiet, info: quiet, warn: quiet, error, isLevelEnabled: (level: string) => level === "error" };
  return { ...log, child: () => log } as unknown as Logger;
}

export interface ServiceSettings {
  readonly maxConnectionAgeMs: number;
  readonly silenceMs: number;
  readonly maxQueued: number;
  readonly keepsHistory: boolean;
}

/** Starts a service. It listens at its name. */
export function startService(
  network: Network,
  name: string,
  { maxConnectionAgeMs, silenceMs, maxQueued, keepsHistory }: ServiceSettings,
): SimulatedProcess {
  const host = new Host(name);
  return runIn(host, () => {
    const log = logOf(host);
    const db = openDatabase("mysql://petstore:petstore@stock/stock", {
      ...databaseDefaults,
      poolMax: 4,
      silenceTimeoutMs: silenceMs,
    });
    const store = new StockStore(db, keepsHistory);
    const commits = new GroupCommit({
      store,
      maxBatch: 1_000,
      maxQueued,
      onDequeued: () => {},
      onWritten: () => {},
    });
    const draining = new AbortController();
    let forgetting: Promise<void> | undefined;
    const handlers = inventoryHandlers({
      store: smallPages(store),
      history: new StockHistory(db),
      keepsHistory,
      actorOf: actorFinder(new Map()),
      commits,
      feed: new ChangeFeed((from) => store.changesAfter(from, entriesPerMessage)),
      lists: new ListFeed(store, fewEntries),
      draining: draining.signal,
      onCall: () => {},
    });
    const server = new RpcServer(network, name, handlers);
    server.listen(maxConnectionAgeMs, connectionGraceMs);
    const retention = new Retention(db);
    let stopCleanup: (() => Promise<void>) | undefined;
    const running: SimulatedProcess = {
      host,
      isReady: false,
      stop: () =>
        runIn(host, async () => {
          running.isReady = false;
          await setTimeout(drainDelayMs);
          draining.abort();
          await server.close(20_000);
          await commits.drain();
          await stopCleanup?.();
          await forgetting;
          await db.destroy();
          return [...end(network, host), ...(commits.queued > 0 ? ["changes in the queue"] : [])];
        }),
    };
    untilReady(() => store.ping(), log, draining.signal).then(
      () => {
        running.isReady = true;
        stopCleanup = startCleanup({
          retention,
          ledgerKeptMs: ledgerKeptMsOf(90),
          onError: () => {},
          onWait: () => {},
        });
        forgetting = forgetAtOnce(store, retention, draining.signal);
      },
      () => {},
    );
    return running;
  });
}

/** A message has so few entries: no run has as many as a real one takes. */
const fewEntries = 4;

function smallPages(store: StockStore): Pick<StockStore, "get" | "getMany" | "changesAfter"> {
  return {
    get: (petId) => store.get(petId),
    getMany: (petIds) => store.getMany(petIds),
    changesAfter: (from, limit) => store.changesAfter(from, Math.min(limit, fewEntries)),
  };
}

/** Forgets removals after a second, as a service does after a month. */
async function forgetAtOnce(store: StockStore, retention: Retention, stopped: AbortSignal): Promise<void> {
  const forget = async () => {
    await retention.noteTime(1_000);
    await retention.forgetRemovals(1_000, fewEntries);
  };
  for (let seen = 0n; !stopped.aborted; await setTimeout(1_400, undefined, { signal: stopped }).catch(() => {})) {
    if (seen === store.lastRevision) continue; // nothing is new: at rest it costs nothing
    seen = store.lastRevision;
    await forget().catch(() => {});
  }
}

export interface GatewaySettings {
  /** That of new keys, and the one that is taken beside it. */
  readonly peppers: readonly [string, string];
  readonly hasRedis: boolean;
  readonly replicas: number;
  readonly timeoutMs: number;
  readonly keyedTimeoutMs: number;
}

/** Starts a gateway. It listens at its name. */
export function startGateway(network: Network, name: string, settings: GatewaySettings): SimulatedProcess {
  const host = new Host(name);
  return runIn(host, () => {
    const config = readGatewayConfig({
      GATEWAY_DATABASE_URL: "mysql://petstore:petstore@keys/keys",
      KEY_PEPPER: settings.peppers[0],
      KEY_PEPPER_OLD: settings.peppers[1],
      REDIS_URL: settings.hasRedis ? "redis://redis" : undefined,
      GATEWAY_REPLICAS: String(settings.replicas),
      INVENTORY_TIMEOUT_MS: String(settings.timeoutMs),
      KEYED_UPDATE_TIMEOUT_MS: String(settings.keyedTimeoutMs),
      KEY_ROTATION: "1",
      KEYED_UPDATES_PER_DAY: String(keyedUpdatesPerDay),
      ADDRESS_GUARD_PER_MINUTE: String(keylessPerMinute),
    });
    const gateway = createGateway(config, { log: logOf(host) });
    const publicServer = createPublicServer({
      router: gateway.router,
      keepAliveTimeoutMs: config.KEEP_ALIVE_TIMEOUT_MS,
      requestTimeoutMs: 2 * config.BODY_TIMEOUT_MS,
      stallTimeoutMs: config.STALL_TIMEOUT_MS,
      maxConnections: config.MAX_CONNECTIONS,
      isProxy: proxyTest(config.TRUSTED_PROXIES),
      overload: { enter: () => true },
      headersOutsideRouter: gateway.headersOutsideRouter,
      onMalformed: gateway.onMalformed,
    });
    serveHttp(network, name, host, publicServer.server);
    const running: SimulatedProcess = {
      host,
      isReady: false,
      stop: () =>
        runIn(host, async () => {
          running.isReady = false;
          running.leavesMs = nowMs();
          publicServer.endConnections();
          gateway.endWaits();
          await setTimeout(drainDelayMs);
          network.unlisten(name, host);
          await Promise.all([publicServer.close(), gateway.saveUse()]);
          const { value: held } = (await gateway.metrics.getSingleMetric("gateway_held_requests")!.get()).values[0]!;
          const { value: sent } = (await gateway.metrics.getSingleMetric("gateway_updates_in_flight")!.get())
            .values[0]!;
          await gateway.close();
          return [...end(network, host), ...(held + sent > 0 ? [`${held} waits and ${sent} changes`] : [])];
        }),
    };
    gateway.untilReady().then(
      () => {
        running.isReady = true;
      },
      () => {},
    );
    return running;
  });
}

function end(network: Network, host: Host): readonly string[] {
  const left = network.peersOf(host);
  host.crash();
  network.drop(host, false);
  return left;
}
