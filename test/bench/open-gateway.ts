// This gateway without keys and limits: it lets everyone pass. What those cost is the difference to the real one.
import type { AddressInfo } from "node:net";
import { type Principal, scopes } from "../../gateway/auth/principal.ts";
import { readGatewayConfig } from "../../gateway/config.ts";
import { ApiError } from "../../gateway/http/errors.ts";
import { createPublicServer } from "../../gateway/http/server.ts";
import { listInventory } from "../../gateway/inventory/handlers.ts";
import { HeldVersions } from "../../gateway/inventory/list/held-versions.ts";
import { StockList } from "../../gateway/inventory/list/stock-list.ts";
import { createInventoryClient } from "../../gateway/inventory/stock-client.ts";
import { createObserver } from "../../gateway/observability/requests.ts";
import { deprecation } from "../../gateway/passthrough/deprecation.ts";
import { gateway } from "../../gateway/routes.ts";
import { createLogger } from "../../runtime/log.ts";
import { noTracing } from "../../runtime/tracing.ts";

const config = readGatewayConfig(process.env);
const everyone: Principal = {
  keyId: "key_everyone",
  accountId: "acc_everyone",
  plan: "enterprise",
  limits: null,
  scopes: new Set(scopes),
  expiresAtMs: null,
  bannedUntilMs: 0,
};
const client = createInventoryClient({
  address: config.INVENTORY_ADDRESS,
  callTimeoutMs: config.INVENTORY_TIMEOUT_MS,
  loadTimeoutMs: config.LIST_TIMEOUT_MS,
  onCheck: () => {},
  tracing: noTracing,
});
const observer = createObserver(createLogger("gateway", config.LOG_LEVEL));
const notHere = () => {
  throw new ApiError("not_found");
};
const router = gateway({
  admission: {
    admit: async (_request, response) => {
      response.locals.principal = everyone;
    },
    announce: () => {},
    headersFor: () => [],
  },
  docs: notHere,
  listInventory: listInventory({
    list: new StockList(client),
    held: new HeldVersions(config.SLOW_READERS_MIB * 1024 * 1024),
    stallTimeoutMs: config.STALL_TIMEOUT_MS,
  }),
  updateInventory: notHere,
  getPet: notHere,
  getOrders: notHere,
  deprecation: deprecation({ deprecatedAt: null, sunsetAt: null, goneAfterSunset: false }),
  clientAddress: (request) => request.socket.remoteAddress ?? "",
  onDone: observer.onDone,
  onError: observer.onError,
  now: Date.now,
});
const { server } = createPublicServer({
  router,
  keepAliveTimeoutMs: config.KEEP_ALIVE_TIMEOUT_MS,
  requestTimeoutMs: 2 * config.BODY_TIMEOUT_MS,
  maxConnections: config.MAX_CONNECTIONS,
  overload: { enter: () => true },
  headersFor: () => [],
  onMalformed: () => {},
});
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ msg: "ready", listen: `127.0.0.1:${port}`, admin: "" }));
});
