/** Starts the public server of a gateway with a router of the test. */
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createPublicServer, type PublicServer, type PublicServerOptions } from "../../gateway/http/server.ts";
import type { Stack } from "./stack.ts";

type Options = Partial<PublicServerOptions> & Pick<PublicServerOptions, "router">;

/** @param options replace time-outs of a minute, and parts that limit and note nothing */
export async function startPublicServer(stack: Stack, options: Options): Promise<PublicServer & { port: number }> {
  const publicServer = createPublicServer({
    keepAliveTimeoutMs: 60_000,
    requestTimeoutMs: 60_000,
    stallTimeoutMs: 60_000,
    maxConnections: 100,
    isProxy: () => true,
    overload: { enter: () => true },
    headersOutsideRouter: () => [],
    onMalformed: () => {},
    ...options,
  });
  const { server } = publicServer;
  stack.defer(() => end(server));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { ...publicServer, port: (server.address() as AddressInfo).port };
}

function end(server: Server): void {
  server.close();
  server.closeAllConnections();
}
