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
 * A gateway in this process, over real HTTP and with a clock of the test's own: what `gateway/main.ts` makes, without
 * logs and without waiting until it is ready.
 *
 * @param env all its settings, as `system.gatewayEnv` and some more
 * @param now Unix milliseconds
 */
export async function startLocalGateway(env: Env, now: () => number = Date.now): Promise<LocalGateway> {
  const config = readGatewayConfig(env);
  const gateway = createGateway(config, pino({ level: "silent" }), now);
  const { server } = createPublicServer({
    router: gateway.router,
    keepAliveTimeoutMs: config.KEEP_ALIVE_TIMEOUT_MS,
    requestTimeoutMs: 2 * config.BODY_TIMEOUT_MS,
    maxConnections: config.MAX_CONNECTIONS,
    overload: { enter: () => true },
    headersFor: gateway.headersFor,
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

/** A clock that only the test moves. It starts at the present, since times go into a database beside real ones. */
export class TestClock {
  #nowMs = Date.now();

  readonly now = (): number => this.#nowMs;

  advance(ms: number): void {
    this.#nowMs += ms;
  }
}
