/** Counts and logs every request, and times what it waits for. */
import type { Request, Response } from "express";
import { Counter, type Registry } from "prom-client";
import { ErrorLog } from "../../runtime/error-log.ts";
import type { Logger } from "../../runtime/log.ts";
import { counter, createRegistry, Distribution, durationBoundsSeconds, type Series } from "../../runtime/metrics.ts";
import type { KeyStore } from "../accounts/keys/key-store.ts";
import { type PlanName, planNames } from "../accounts/keys/plans.ts";
import type { ApiError } from "../http/api-error.ts";
import { contextOf, type RequestContext } from "../http/request-context.ts";

/** The reasons for a 429: a window, a ban, a guard of the account, or the limit of the address. */
const throttleReasons = ["minute", "day", "ban", "account", "address"] as const;
type ThrottleReason = (typeof throttleReasons)[number];

export interface Observer {
  readonly metrics: Registry;
  readonly onDone: (request: Request, response: Response) => void;
  readonly onError: (error: ApiError, context: RequestContext) => void;
  /** Gets what was refused before the router, but for refusals of an overload. */
  readonly onMalformed: (error: ApiError, requestId: string) => void;
  /** @param plan none for a caller without a valid key */
  readonly onThrottled: (plan: PlanName | "none", reason: ThrottleReason) => void;
  readonly onBan: () => void;
  /** Gets the duration of each check for changes, from the question to its whole answer. */
  readonly onCheck: (durationMs: number, isAnswered: boolean) => void;
  /** The store with its look-ups timed. */
  readonly timed: (store: Pick<KeyStore, "findByHash">) => Pick<KeyStore, "findByHash">;
  /** Logs the errors that are only counted so far. */
  readonly close: () => void;
}

const plans = [...planNames, "none"] as const;

/**
 * Makes the request log and its metrics. Labels come from closed sets, such as the route table, and never from a
 * caller.
 */
export function createObserver(log: Logger): Observer {
  const metrics = createRegistry();
  const requests = new Distribution(
    {
      name: "gateway_request_duration_seconds",
      help: "Public requests by route, plan and status, to the end of the response",
      registry: metrics,
    },
    durationBoundsSeconds,
  );
  const errors = new ErrorLog(log, "request failed");
  const seriesByOperation = new Map<string, Record<PlanName | "none", Series[]>>();

  return {
    metrics,
    onDone: (request, response) => {
      const { requestId, principal, operationName, errorCode, arrivedMs } = contextOf(response);
      const durationMs = performance.now() - arrivedMs;
      const status = response.headersSent ? response.statusCode : 499; // the caller left before it was answered
      const plan = principal?.plan ?? "none";
      let byPlan = seriesByOperation.get(operationName);
      if (!byPlan) {
        byPlan = tableOf(plans, () => []);
        seriesByOperation.set(operationName, byPlan);
      }
      const byStatus = byPlan[plan];
      byStatus[status] ??= requests.series({ route: operationName, plan, status });
      byStatus[status].observe(durationMs / 1_000);
      if (!log.isLevelEnabled("info")) return;
      log.info(
        {
          requestId,
          method: request.method,
          route: operationName,
          status,
          code: errorCode,
          whole: response.writableFinished,
          durationMs: Math.round(durationMs * 100) / 100,
          account: principal?.accountId,
          keyId: principal?.keyId,
        },
        "request",
      );
    },
    onError: (error, { requestId, operationName }) => {
      const fields = { requestId, route: operationName, code: error.code, err: error.cause };
      if (error.status >= 500) errors.add(`${operationName} ${error.code}`, fields);
      else if (error.cause !== undefined) log.debug(fields, "request refused");
    },
    onMalformed: malformed(metrics, log),
    ...throttling(metrics),
    onCheck: checks(metrics),
    timed: timed(metrics),
    close: () => errors.close(),
  };
}

function malformed(registry: Registry, log: Logger): Observer["onMalformed"] {
  const count = new Counter({
    name: "gateway_malformed_requests_total",
    help: "Requests that were refused before they reached a route: not valid HTTP, too slow, too large a head",
    labelNames: ["status"],
    registers: [registry],
  });
  return ({ status, code, cause }, requestId) => {
    count.inc({ status });
    // Such an answer ends its connection, so a caller cannot have more lines than connections.
    log.info({ requestId, status, code, reason: (cause as { code?: string } | undefined)?.code }, "request malformed");
  };
}

function throttling(registry: Registry): Pick<Observer, "onThrottled" | "onBan"> {
  const throttled = tableOf(plans, () => tableOf(throttleReasons, () => 0));
  const labelNames = ["plan", "reason"];
  const help =
    "Requests that got 429, by the window, ban, guard of the account or limit of the address that throttled them";
  counter({ name: "gateway_limit_refusals_total", help, registry, labelNames }, () =>
    plans.flatMap((plan) => throttleReasons.map((reason) => [{ plan, reason }, throttled[plan][reason]] as const)),
  );
  const bans = new Counter({ name: "gateway_bans_total", help: "Bans given to keys", registers: [registry] });
  return {
    onThrottled: (plan, reason) => {
      throttled[plan][reason] += 1;
    },
    onBan: () => bans.inc(),
  };
}

function checks(registry: Registry): Observer["onCheck"] {
  const help = "Checks for changes: from the question to its whole answer";
  const durations = new Distribution({ name: "gateway_check_duration_seconds", help, registry }, durationBoundsSeconds);
  const [answered, failed] = [durations.series({ outcome: "answered" }), durations.series({ outcome: "failed" })];
  return (durationMs, isAnswered) => (isAnswered ? answered : failed).observe(durationMs / 1_000);
}

function timed(registry: Registry): Observer["timed"] {
  const help = "Look-ups of keys in the database";
  const lookUps = new Distribution(
    { name: "gateway_key_lookup_duration_seconds", help, registry },
    durationBoundsSeconds,
  );
  const outcomes = tableOf(["known", "unknown", "failed"] as const, (outcome) => lookUps.series({ outcome }));
  return (store) => ({
    findByHash: async (keyHash) => {
      const startedMs = performance.now();
      let outcome: keyof typeof outcomes = "failed";
      try {
        const principal = await store.findByHash(keyHash);
        outcome = principal ? "known" : "unknown";
        return principal;
      } finally {
        outcomes[outcome].observe((performance.now() - startedMs) / 1_000);
      }
    },
  });
}

function tableOf<K extends string, V>(keys: readonly K[], of: (key: K) => V): Record<K, V> {
  return Object.fromEntries(keys.map((key) => [key, of(key)])) as Record<K, V>;
}
