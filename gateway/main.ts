#!/usr/bin/env -S node --max-semi-space-size=32
/** The gateway as a process: the public port, the operators' port, and a stop that drains. */
import "../runtime/node-version.ts";
import { Counter } from "prom-client";
import { blamingSetting, listenOn, startAdmin } from "../runtime/admin.ts";
import { createCommand, runCommand } from "../runtime/command-line.ts";
import { blamingDatabase } from "../runtime/database/faults.ts";
import { createLogger } from "../runtime/log.ts";
import { LogOutput } from "../runtime/log-output.ts";
import { type RunningProcess, runProcess } from "../runtime/process.ts";
import { startTracing } from "../runtime/tracing.ts";
import { gatewaySettings, keyDatabaseSetting, readGatewayConfig } from "./config.ts";
import { createGateway } from "./gateway.ts";
import { proxyTest } from "./http/client-address.ts";
import { Overload } from "./http/overload.ts";
import { createPublicServer } from "./http/server.ts";

const command = createCommand(
  "gateway",
  "The gateway: the public REST API of the petstore inventory.",
  gatewaySettings,
);
await runCommand(command.action(() => runProcess(start)));

async function start(): Promise<RunningProcess> {
  const config = readGatewayConfig(process.env);
  const output = new LogOutput();
  const log = createLogger("gateway", config.LOG_LEVEL, output);
  const tracing = await startTracing("gateway", process.env, (reason) => log.warn({ reason }, "spans cannot be sent"));
  const gateway = await blamingDatabase(keyDatabaseSetting, async () =>
    createGateway(config, { log, isTraced: tracing.isOn }),
  );
  output.expose(gateway.metrics, "gateway");

  const refusals = new Counter({
    name: "gateway_overload_refusals_total",
    help: "Requests that were refused because the event loop was late",
    registers: [gateway.metrics],
  });
  const overload = new Overload({
    maxDelayMs: config.OVERLOAD_DELAY_MS,
    maxWaiting: config.OVERLOAD_REQUESTS,
    onRefusal: () => refusals.inc(),
    onChange: (isOverloaded) => log.info(isOverloaded ? "overload: the event loop is late" : "the overload has ended"),
  });
  const publicServer = createPublicServer({
    router: gateway.router,
    keepAliveTimeoutMs: config.KEEP_ALIVE_TIMEOUT_MS,
    requestTimeoutMs: 2 * config.BODY_TIMEOUT_MS,
    stallTimeoutMs: config.STALL_TIMEOUT_MS,
    maxConnections: config.MAX_CONNECTIONS,
    isProxy: proxyTest(config.TRUSTED_PROXIES),
    overload,
    headersOutsideRouter: gateway.headersOutsideRouter,
    onMalformed: gateway.onMalformed,
  });
  let reasonNotReady: string | undefined = "starting";
  const admin = await blamingSetting(
    "GATEWAY_ADMIN_LISTEN",
    startAdmin({
      listen: config.GATEWAY_ADMIN_LISTEN,
      metrics: gateway.metrics,
      log,
      checkReady: async () => {
        if (reasonNotReady !== undefined) throw new Error(reasonNotReady);
        return gateway.databaseRisks();
      },
    }),
  );
  const listen = await blamingSetting("GATEWAY_LISTEN", listenOn(publicServer.server, config.GATEWAY_LISTEN));
  return {
    log,
    drainDelaySeconds: config.DRAIN_DELAY_SECONDS,
    drainSeconds: config.DRAIN_SECONDS,
    addresses: { listen, admin: admin.address },
    untilReady: () => gateway.untilReady(),
    join: () => {
      reasonNotReady = undefined;
    },
    leave: () => {
      reasonNotReady = "draining";
      publicServer.endConnections();
      gateway.endWaits();
    },
    stop: async () => {
      // A client that does not take its answer may hold up all that follows until the stop ends by force.
      await Promise.all([publicServer.close(), gateway.saveUse()]);
      overload.close();
      await gateway.close();
      await admin.close();
      await tracing.close();
    },
  };
}
