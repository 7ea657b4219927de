import express from "express";
import { listenOn, startAdmin } from "../runtime/admin.ts";
import { createLogger } from "../runtime/log.ts";
import { runProcess, untilReady } from "../runtime/process.ts";
import { gatewayHelp, readGatewayConfig } from "./config.ts";
import { createPublicServer } from "./http/server.ts";
import { createGateway } from "./plugin.ts";

await runProcess(gatewayHelp, async () => {
  const config = readGatewayConfig(process.env);
  const log = createLogger("gateway", config.LOG_LEVEL);
  const gateway = createGateway(config, log);

  const app = express().disable("x-powered-by").disable("etag").set("query parser", false);
  app.use(gateway.router);
  const publicServer = createPublicServer({
    handler: app,
    keepAliveTimeoutMs: config.KEEP_ALIVE_TIMEOUT_MS,
    requestTimeoutMs: 2 * config.BODY_TIMEOUT_MS,
    headersFor: gateway.headersFor,
  });
  let reasonNotReady: string | undefined = "starting";
  const admin = await startAdmin({
    listen: config.GATEWAY_ADMIN_LISTEN,
    metrics: gateway.metrics,
    ready: async () => {
      if (reasonNotReady !== undefined) throw new Error(reasonNotReady);
    },
  });
  const listen = await listenOn(publicServer.server, config.GATEWAY_LISTEN);
  await untilReady(() => gateway.ready(), log);
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
      await gateway.close();
      await admin.close();
    },
  };
});
