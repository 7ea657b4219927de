import type { Request, Response } from "express";
import { collectDefaultMetrics, Histogram, Registry } from "prom-client";
import type { Logger } from "../../runtime/log.ts";
import type { PlanName } from "../auth/principal.ts";
import type { ApiError } from "../http/errors.ts";
import type { Locals, RouteName } from "../http/locals.ts";

export interface Observer {
  readonly metrics: Registry;
  readonly onDone: (request: Request, response: Response) => void;
  readonly onError: (error: ApiError, locals: Partial<Locals>) => void;
}

/** Counts and logs every request. The label sets are closed: a caller cannot make one grow. */
export function createObserver(log: Logger, now: () => number): Observer {
  const metrics = new Registry();
  collectDefaultMetrics({ register: metrics });
  const requests = new Histogram({
    name: "gateway_request_duration_seconds",
    help: "Public requests by route, plan and status",
    labelNames: ["route", "plan", "status"],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
    registers: [metrics],
  });

  // prom-client sorts and joins the labels at each look-up; there are only so many sets of them.
  const known = new Map<string, ReturnType<typeof requests.labels>>();
  const series = (route: RouteName, plan: PlanName | "none", status: number) => {
    const name = `${route} ${plan} ${status}`;
    let found = known.get(name);
    if (!found) {
      found = requests.labels({ route, plan, status });
      known.set(name, found);
    }
    return found;
  };

  return {
    metrics,
    onDone: (request, response) => {
      const { requestId, principal, route, arrivedAtMs } = response.locals as Locals;
      const durationMs = now() - arrivedAtMs;
      const status = response.headersSent ? response.statusCode : 499; // the caller left before it was answered
      series(route, principal?.plan ?? "none", status).observe(durationMs / 1_000);
      if (!log.isLevelEnabled("info")) return;
      log.info(
        {
          requestId,
          method: request.method,
          route,
          status,
          whole: response.writableFinished,
          durationMs,
          account: principal?.accountId,
          keyId: principal?.keyId,
        },
        "request",
      );
    },
    onError: (error, { requestId, route }) => {
      const detail = { requestId, route, code: error.code, err: error.cause };
      if (error.status >= 500) log.error(detail, "request failed");
      else if (error.cause !== undefined) log.debug(detail, "request refused");
    },
  };
}
