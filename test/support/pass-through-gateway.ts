// The handlers that pass a request on, between upstreams and clients that a test controls.
import { EventEmitter, once } from "node:events";
import {
  type Agent,
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  request,
  Server,
  type ServerResponse,
} from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Socket, type Server as TcpServer } from "node:net";
import type { Readable } from "node:stream";
import express, { type ErrorRequestHandler, type Request } from "express";
import type { Principal } from "../../gateway/accounts/keys/principal.ts";
import type { ApiError } from "../../gateway/http/api-error.ts";
import { setContext } from "../../gateway/http/request-context.ts";
import { writeError } from "../../gateway/http/respond.ts";
import { type PassThroughOptions, passThrough } from "../../gateway/passthrough/handler.ts";

/** A key that the client sends, and one that nothing here knows. */
export const key = `ps_test_${"0123456789".repeat(4).slice(2)}`;
export const anotherKey = `ps_live_${"ABCDEFGHIJ".repeat(4).slice(2)}`;
const closing: (() => Promise<void>)[] = [];

/** Closes what the test has started: for `afterEach`. */
export async function closeServers(): Promise<void> {
  for (const close of closing.splice(0).reverse()) await close();
}

export async function startUpstream(
  answer: (req: IncomingMessage, res: ServerResponse) => unknown,
  host = "127.0.0.1",
) {
  const requests: Pick<IncomingMessage, "method" | "url" | "headers">[] = [];
  let connections = 0;
  const server = createServer((req, res) => {
    requests.push({ method: req.method, url: req.url, headers: req.headers });
    answer(req, res);
  });
  server.on("connection", () => {
    connections += 1;
  });
  const url = await listen(server, host);
  return { url, server, requests, connections: () => connections };
}

/** Starts an upstream that answers at the level of TCP. */
export async function startTcpUpstream(onConnection: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  let received = "";
  let connections = 0;
  const server = createTcpServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("data", (chunk) => {
      received += chunk.toString("latin1");
    });
    onConnection(socket);
  });
  const url = await listen(server, "127.0.0.1", () => {
    for (const socket of sockets) socket.destroy();
  });
  const allClosed = async () => {
    for (const socket of sockets) await closed(socket);
  };
  return { url, received: () => received, connections: () => connections, open: () => sockets, allClosed };
}

/**
 * Starts the pass-through handlers between the request context and the error writer that a gateway gives them.
 *
 * @param setByApp headers that an app around the gateway has set
 */
export async function startGateway({ setByApp = {}, ...options }: Partial<PassThroughOptions> & AppHeaders) {
  const errors: ApiError[] = [];
  const arrivals = new EventEmitter();
  const onError: ErrorRequestHandler = (thrown, req, res, _next) => void errors.push(writeError(req, res, thrown));
  const handler = (name: string, path: (parameters: Request["params"]) => string) =>
    passThrough({ upstream: null, timeoutMs: 10_000, clientTimeoutMs: 30_000, admission, ...options, name })(path);
  const router = express
    .Router()
    .use((req, res, next) => {
      setContext(res, {
        requestId: "request-1",
        clientAddress: "192.0.2.1",
        arrivedMs: performance.now(),
        operationName: "unknown",
        errorCode: undefined,
        limitHeaders: [],
        shownWindows: [],
        deprecationHeaders: [],
        principal: { ...principal, accountId: String(req.headers["x-account"] ?? principal.accountId) },
        token: key,
        waitsForOthersFromMs: Number.POSITIVE_INFINITY,
        isHurried: false,
        onHurry: undefined,
        prefetched: undefined,
      });
      res.setHeader("X-Request-Id", "request-1").setHeader("X-RateLimit-Limit", "60").setHeader("RateLimit", "ours");
      res.setHeader("Link", "<ours>").setHeader("X-Content-Type-Options", "ours");
      for (const [name, value] of Object.entries(setByApp)) res.setHeader(name, value);
      arrivals.emit(req.originalUrl, once(res, "close"));
      // Holds the request like an authentication that takes longer than the client waits.
      if ("x-hold" in req.headers) res.once("close", next);
      else next();
    })
    .get(
      "/pets/:petId",
      handler("pets", ({ petId }) => `/pets/${petId}`),
    )
    .get(
      "/store/orders",
      handler("orders", () => "/store/orders"),
    );
  const server = createServer(express().disable("x-powered-by").use("/v1", router).use(onError));
  const url = await listen(server, "127.0.0.1");
  /** Resolves when a request has arrived, with a promise of its end. */
  const arrived = async (path: string) => ({ end: (await once(arrivals, path))[0] as Promise<unknown> });
  return { url, errors, arrived };
}

interface AppHeaders {
  readonly setByApp?: Record<string, string>;
}

const admission = { isKeyKnownGood: () => true, reverifyKeyAndBan: async () => {} };

export type Gateway = Awaited<ReturnType<typeof startGateway>>;

const principal: Principal = {
  keyId: "key-1",
  familyId: "key-1",
  accountId: "account-1",
  plan: "free",
  limits: null,
  scopes: new Set(["store:read"]),
  expiresAtMs: null,
  bannedUntilMs: 0,
};

async function listen(server: Server | TcpServer, host: string, endConnections?: () => void): Promise<URL> {
  server.listen(0, host);
  await once(server, "listening");
  closing.push(async () => {
    server.close();
    if (server instanceof Server) server.closeAllConnections();
    endConnections?.();
    if (server.listening) await once(server, "close");
  });
  return new URL(`http://${host.includes(":") ? `[${host}]` : host}:${(server.address() as AddressInfo).port}`);
}

/** Resolves when a stream is closed. `once` would reject at an error before that. */
export function closed(stream: Readable): Promise<void> {
  return new Promise((resolve) => void stream.once("close", resolve));
}

interface Asked {
  agent?: Agent;
  method?: string;
  headers?: OutgoingHttpHeaders;
}

/** Resolves to the response once its head has arrived. */
export async function open(gateway: Gateway, path: string, asked: Asked = {}): Promise<IncomingMessage> {
  const sent = request(new URL(path, gateway.url), { agent: false, ...asked });
  sent.on("error", () => {}).end();
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return response;
}

/** Resolves to the response with its body, or the part of it that arrived. */
export async function get(gateway: Gateway, path: string, asked?: Asked) {
  const response = await open(gateway, path, asked);
  let body = "";
  try {
    for await (const chunk of response) body += chunk;
  } catch {
    // It broke off: `complete` says so.
  }
  return { status: response.statusCode, headers: response.headers, body, complete: response.complete };
}

export async function getError(gateway: Gateway, path = "/v1/pets/7") {
  const { status, body, headers } = await get(gateway, path);
  const { code, ...rest } = JSON.parse(body);
  expect(rest).toEqual({ status, message: expect.any(String) });
  expect(headers["x-ratelimit-limit"]).toBe("60");
  return { status, code };
}
