// This gateway without keys and limits: it admits every request. The real one costs more by what those cost.
import type { AddressInfo } from "node:net";
import { type Principal, scopes } from "../../gateway/accounts/keys/principal.ts";
import { readGatewayConfig } from "../../gateway/config.ts";
import { createPublicServer } from "../../gateway/http/server.ts";
import { PinnedBodies } from "../../gateway/inventory/list/pinned-bodies.ts";
import { StockList } from "../../gateway/inventory/list/stock-list.ts";
import { listInventory } from "../../gateway/inventory/reads/read-handlers.ts";
import { openStockClient } from "../../gateway/inventory/stock-client.ts";
import { createObserver } from "../../gateway/observability/requests.ts";
import { createRouter } from "../../gateway/router.ts";
import { createLogger } from "../../runtime/log.ts";

const config = readGatewayConfig(process.env);
const everyone: Principal = {
  keyId: "key_everyone",
  familyId: "key_everyone",
  accountId: "acc_everyone",
  plan: "enterprise",
  limits: null,
  scopes: new Set(scopes),
  expiresAtMs: null,
  bannedUntilMs: 0,
};
const stock = openStockClient({
  address: config.INVENTORY_ADDRESS,
  callTimeoutMs: config.INVENTORY_TIMEOUT_MS,
  keyedTimeoutMs: config.KEYED_UPDATE_TIMEOUT_MS,
  onCheck: () => {},
});
const observer = createObserver(createLogger("gateway", config.LOG_LEVEL));
const list = new StockList(stock, config.INVENTORY_TIMEOUT_MS);
const pinnedBodies = new PinnedBodies(config.SLOW_READERS_MIB * 1024 * 1024);
const router = createRouter({
  routes: {
    "GET /v1/inventory": {
      name: "listInventory",
      scope: "inventory:read",
      handler: listInventory({
        list,
        admission: { reverifyKeyAndBan: async () => {} },
        pinnedBodies,
        allowanceMs: config.STALL_TIMEOUT_MS,
      }),
    },
  },
  admission: {
    admit: async (_request, context) => {
      context.principal = everyone;
    },
    setAddressHeaders: () => {},
  },
  pages: (_request, _response, next) => next(),
  clientAddress: (request) => request.socket.remoteAddress ?? "",
  onDeprecatedUse: () => {},
  onDone: observer.onDone,
  onError: observer.onError,
  now: Date.now,
});
const { server } = createPublicServer({
  router,
  keepAliveTimeoutMs: config.KEEP_ALIVE_TIMEOUT_MS,
  requestTimeoutMs: 2 * config.BODY_TIMEOUT_MS,
  stallTimeoutMs: config.STALL_TIMEOUT_MS,
  maxConnections: config.MAX_CONNECTIONS,
  isProxy: () => true,
  overload: { enter: () => true },
  headersOutsideRouter: () => [],
  onMalformed: () => {},
});
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ msg: "ready", listen: `127.0.0.1:${port}`, admin: "" }));
});
