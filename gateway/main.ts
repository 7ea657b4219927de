#!/usr/bin/env -S node --max-semi-space-size=32
import { Counter } from "prom-client";
import { asSet, listenOn, startAdmin } from "../runtime/admin.ts";
import { createLogger } from "../runtime/log.ts";
import { runProcess } from "../runtime/process.ts";
import { openTracing } from "../runtime/tracing.ts";
import { gatewayHelp, readGatewayConfig } from "./config.ts";
import { createGateway } from "./gateway.ts";
import { Overload } from "./http/overload.ts";
import { createPublicServer } from "./http/server.ts";

await runProcess(gatewayHelp, async () => {
  const config = readGatewayConfig(process.env);
  const tracing = await openTracing("gateway", process.env, (reason) => log.warn({ reason }, "traces are not sent"));
  const log = createLogger("gateway", config.LOG_LEVEL, tracing.logFields);
  const gateway = createGateway(config, log, Date.now, tracing);

  const refusals = new Counter({
    name: "gateway_overload_refusals_total",
    help: "Requests that were refused because the event loop was late",
    registers: [gateway.metrics],
  });
  const overload = new Overload({
    maxDelayMs: config.OVERLOAD_DELAY_MS,
    maxWaiting: config.OVERLOAD_REQUESTS,
    onRefusal: () => refusals.inc(),
    onChange: (isOverloaded) => log.info(isOverloaded ? "overload: the event loop is late" : "the overload is over"),
  });
  const publicServer = createPublicServer({
    router: gateway.router,
    keepAliveTimeoutMs: config.KEEP_ALIVE_TIMEOUT_MS,
    requestTimeoutMs: 2 * config.BODY_TIMEOUT_MS,
    maxConnections: config.MAX_CONNECTIONS,
    overload,
    headersFor: gateway.headersFor,
    onMalformed: gateway.onMalformed,
  });
  let reasonNotReady: string | undefined = "starting";
  const admin = await asSet(
    "GATEWAY_ADMIN_LISTEN",
    startAdmin({
      listen: config.GATEWAY_ADMIN_LISTEN,
      metrics: gateway.metrics,
      ready: async () => {
        if (reasonNotReady !== undefined) throw new Error(reasonNotReady);
      },
    }),
  );
  const listen = await asSet("GATEWAY_LISTEN", listenOn(publicServer.server, config.GATEWAY_LISTEN));
  await gateway.ready();
  reasonNotReady = undefined;

  return {
    log,
    drainDelaySeconds: config.DRAIN_DELAY_SECONDS,
    drainSeconds: config.DRAIN_SECONDS,
    addresses: { listen, admin: admin.address },
    leave: () => {
      reasonNotReady = "draining";
      publicServer.endConnections();
    },
    stop: async () => {
      await publicServer.close();
      overload.close();
      await gateway.close();
      await admin.close();
      await tracing.close();
    },
  };
});
