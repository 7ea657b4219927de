import { pino } from "pino";
import { readGatewayConfig } from "../../gateway/config.ts";
import { createGateway } from "../../gateway/gateway.ts";
import { createPublicServer } from "../../gateway/http/server.ts";
import { listenOn } from "../../runtime/admin.ts";
import type { Env } from "./system.ts";

export interface LocalGateway {
  /** Public address, `host:port`. */
  readonly address: string;
  close(): Promise<void>;
}

/**
 * Starts a gateway in this process, over real HTTP and with a clock of the test's own. It is the one of
 * `gateway/main.ts`, without logs and without the wait for readiness.
 *
 * @param env all of its settings, such as `system.gatewayEnv` with changes
 * @param now Unix milliseconds
 */
export async function startLocalGateway(env: Env, now: () => number = Date.now): Promise<LocalGateway> {
  const config = readGatewayConfig(env);
  const gateway = createGateway(config, { log: pino({ level: "silent" }), now });
  const { server } = createPublicServer({
    router: gateway.router,
    keepAliveTimeoutMs: config.KEEP_ALIVE_TIMEOUT_MS,
    requestTimeoutMs: 2 * config.BODY_TIMEOUT_MS,
    stallTimeoutMs: config.STALL_TIMEOUT_MS,
    maxConnections: config.MAX_CONNECTIONS,
    isProxy: () => true,
    overload: { enter: () => true },
    headersOutsideRouter: gateway.headersOutsideRouter,
    onMalformed: gateway.onMalformed,
  });
  const address = await listenOn(server, config.GATEWAY_LISTEN);
  return {
    address,
    close: async () => {
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
      await gateway.close();
    },
  };
}

/** A clock that only the test moves. It starts at the present, as its times are stored next to real ones. */
export class TestClock {
  #nowMs = Date.now();

  readonly now = (): number => this.#nowMs;

  advance(ms: number): void {
    this.#nowMs += ms;
  }
}
