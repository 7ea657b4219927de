/** Constructs what decides about callers: their keys and their limits. */
import { databaseDefaults, openDatabase } from "../runtime/database/open.ts";
import { traceQueries } from "../runtime/database/query-spans.ts";
import { DatabaseRisks } from "../runtime/database/risks.ts";
import { ErrorLog } from "../runtime/error-log.ts";
import type { Logger } from "../runtime/log.ts";
import { Authenticator } from "./accounts/keys/authenticator.ts";
import { createKeyStore } from "./accounts/keys/key-store.ts";
import type { Peppers } from "./accounts/keys/pepper.ts";
import { UsageRecorder } from "./accounts/usage/usage-recorder.ts";
import { createUsageStore } from "./accounts/usage/usage-store.ts";
import { createAdmission } from "./admission/admission.ts";
import { type BanRules, createBanHandler, publishedBanRules } from "./admission/bans.ts";
import { localState, redisState, type SharedStateOptions } from "./admission/shared-state.ts";
import { Strikes } from "./admission/strikes.ts";
import { type GatewayConfig, keyDatabaseSetting } from "./config.ts";
import { MemoryWindows } from "./limits/memory-windows.ts";
import { windowsByPlan } from "./limits/windows.ts";
import type { Observer } from "./observability/requests.ts";

/** The configuration, log, clock and observer that every part of the gateway is made with. */
export interface GatewayBase {
  readonly config: GatewayConfig;
  readonly log: Logger;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly isTraced: boolean;
  readonly observer: Observer;
}

const usageIntervalMs = 30_000;

/** Accounts and keys: the database, the look-up of keys, and the record of their use. */
export function openKeys({ config, log, now, isTraced, observer }: GatewayBase, peppers: Peppers) {
  const risks = new DatabaseRisks(log, keyDatabaseSetting);
  const db = openDatabase(config.GATEWAY_DATABASE_URL, { ...databaseDefaults, onConnected: risks.see });
  risks.expose(observer.metrics, "gateway");
  const stopWatching = risks.watch(db);
  if (isTraced) traceQueries(db);
  const store = createKeyStore(db);
  const usage = new UsageRecorder({ store: createUsageStore(db), log, intervalMs: usageIntervalMs, now });
  const authenticator = new Authenticator({ store: observer.timed(store), peppers, now });
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

/** Accounts whose counts are remembered, in less than 100 MiB. */
const maxAccounts = 300_000;

/** Admission: bans; windows and strikes, shared with the other gateways over Redis where there is one. */
export function openLimits({ config, log, now, observer }: GatewayBase, keys: ReturnType<typeof openKeys>) {
  const banRules: BanRules = {
    ...publishedBanRules,
    maxStrikes: config.BAN_REFUSALS_PER_MINUTE,
    ladderMinutes: config.BAN_LADDER_MINUTES,
  };
  const { REDIS_URL: redisUrl, GATEWAY_REPLICAS: gatewayCount } = config;
  const options: SharedStateOptions = {
    memory: new MemoryWindows({ maxAccounts, gatewayCount, now }),
    gatewayCount,
    keyedUpdatesPerDay: config.KEYED_UPDATES_PER_DAY,
    onThrottled: (plan) => observer.onThrottled(plan, "account"),
  };
  const shared =
    redisUrl === undefined ? localState(options) : redisState({ ...options, redisUrl, log, metrics: observer.metrics });
  shared.onInvalidation((id) => keys.authenticator.forget(id));
  const onKeyChange = (id: string) => {
    keys.authenticator.forget(id);
    shared.invalidate(id);
  };
  const banErrors = new ErrorLog(log, "a ban could not be stored");
  const strikes = new Strikes({
    maxStrikes: banRules.maxStrikes,
    onTooMany: createBanHandler({
      store: keys.store,
      rules: banRules,
      onBan: (familyId, ban, isNew) => {
        if (!isNew) return keys.authenticator.forget(familyId);
        onKeyChange(familyId);
        observer.onBan();
        log.warn({ familyId, ...ban }, "key banned, with the keys that rotations have made of it");
      },
      onError: (err) => banErrors.add("ban", { err }),
      now,
    }),
    share: shared.shareStrikes,
    now,
  });
  const admission = createAdmission({
    authenticator: keys.authenticator,
    onUse: keys.usage.used,
    limiter: shared.limiter,
    ownAccountGuard: shared.guards.ownAccount,
    addressGuardPerMinute: config.ADDRESS_GUARD_PER_MINUTE,
    windowsFor: windowsByPlan(config.PLAN_LIMITS),
    strikes,
    onThrottled: observer.onThrottled,
    now,
  });
  return {
    banRules,
    admission,
    guards: shared.guards,
    connectionTried: shared.connectionTried,
    /** Makes every gateway look up again what it remembers of a key, a family of keys or an account. */
    onKeyChange,
    close: () => {
      strikes.close();
      banErrors.close();
      shared.close();
    },
  };
}
