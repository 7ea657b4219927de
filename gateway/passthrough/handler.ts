import { Agent as HttpAgent, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { Readable, type Writable } from "node:stream";
import type { Request, RequestHandler, Response } from "express";
import { createProxyMiddleware, type Plugin } from "http-proxy-middleware";
import { ApiError } from "../http/errors.ts";
import type { Locals } from "../http/request-context.ts";
import { Exchange } from "./exchange.ts";
import { headersToSendUp, queryToSendUp } from "./forwarded-headers.ts";

export interface PassThroughOptions {
  /** Base URL of the service that owns the resource, or null when none is configured. */
  readonly upstream: URL | null;
  /** Name of the service in the log, as in `pets`. */
  readonly name: string;
  /** The path below the upstream's base URL, as in `/pets/7`. Made of what has been checked, not of the client's text. */
  readonly path: (req: Request) => string;
  /** The longest wait for a connection and a response head together, and for each further piece of the body. */
  readonly timeoutMs: number;
  /** The longest wait for a client that takes nothing of the body: it holds one of the connections. */
  readonly clientTimeoutMs: number;
  readonly maxConnections?: number;
  /** How many requests may wait for a connection; those beyond are refused at once. */
  readonly maxWaiting?: number;
}

/** What http-proxy-middleware gets for the client's request. */
interface UpstreamCall extends IncomingMessage {
  readonly exchange: Exchange;
}

/**
 * Passes GET and HEAD on to the service that owns the resource, after authentication, limits and validation.
 *
 * The upstream's 2xx and 304 come back as they are, with the headers that the gateway has set in place of the
 * upstream's. Everything else becomes an ApiError given to `next`: 502 `upstream_unavailable` (refused, broken, or the
 * upstream's own 5xx and refusals of the gateway), 504 `upstream_timeout`, 503 `service_unavailable` (none configured,
 * or too busy), 404, 400 and 412 as the upstream's. A body that breaks off takes the client's connection with it,
 * and then `next` is called with headers already sent.
 */
export function passThrough(options: PassThroughOptions): RequestHandler {
  const { upstream, name, path, timeoutMs, clientTimeoutMs } = options;
  const { maxConnections = 256, maxWaiting = 4 * maxConnections } = options;
  if (upstream === null) {
    return (_req, _res, next) => next(unavailable(`no upstream is configured for ${name}`));
  }
  const Agent = upstream.protocol === "https:" ? HttpsAgent : HttpAgent;
  const agent = new Agent({
    keepAlive: true,
    maxSockets: maxConnections,
    maxFreeSockets: Math.ceil(maxConnections / 4),
  });
  const proxy = createProxyMiddleware<UpstreamCall, ServerResponse>({
    target: upstream,
    agent,
    selfHandleResponse: true,
    // The library's own plugins would answer errors in their own words, and make up a log line for every response.
    ejectPlugins: true,
    plugins: [reportToExchange],
  });

  return (req, res, next) => {
    // A client may have gone while its key was looked up.
    if (res.destroyed) return;
    const waiting = Object.values(agent.requests).reduce((sum, requests) => sum + (requests?.length ?? 0), 0);
    if (waiting >= maxWaiting) {
      next(unavailable(`${waiting} requests wait for a connection to ${name}`));
      return;
    }
    const pathBelow = path(req);
    const send = (sink: Writable) => {
      const call = upstreamCall(req, res, pathBelow, exchange);
      void proxy(call, sink as ServerResponse, (error) =>
        exchange.failed((error as Error | undefined) ?? new Error("the proxy did not take the request")),
      );
    };
    const exchange = new Exchange({ name, res, next, timeoutMs, clientTimeoutMs, send });
    exchange.send();
  };
}

const reportToExchange: Plugin<UpstreamCall, ServerResponse> = (proxy) => {
  proxy.on("proxyReq", (request, call) => call.exchange.connected(request));
  proxy.on("proxyRes", (response, call) => call.exchange.answered(response));
  proxy.on("error", (error, call) => call?.exchange.failed(error));
  proxy.on("econnreset", (error, call) => call.exchange.failed(error));
};

/**
 * What goes up, apart from the client's request. The library sends every header and the body of the request that it is
 * given, and with `Expect: 100-continue` it offers no chance to take something away.
 */
function upstreamCall(req: Request, res: Response, path: string, exchange: Exchange): UpstreamCall {
  const { requestId, principal, clientAddress } = res.locals as Locals;
  const headers: IncomingHttpHeaders = {
    ...headersToSendUp(req.headers),
    "x-request-id": requestId,
    "x-account-id": principal.accountId,
    "x-forwarded-for": clientAddress,
  };
  const url = path + queryToSendUp(req.url, req.headers);
  const noBody = new Readable({ read: () => {} });
  noBody.push(null);
  const method = req.method === "HEAD" ? "HEAD" : "GET";
  return Object.assign(noBody, { exchange, method, url, headers }) as UpstreamCall;
}

function unavailable(reason: string): ApiError {
  return new ApiError("service_unavailable", { cause: new Error(reason) });
}
