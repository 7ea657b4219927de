/** Passes requests on to the services that own pets and orders. */
import { Agent as HttpAgent, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { Readable, type Writable } from "node:stream";
import type { Request, RequestHandler, Response } from "express";
import { createProxyMiddleware, type Plugin } from "http-proxy-middleware";
import { Shares } from "../../runtime/shares.ts";
import type { Admission } from "../admission/admission.ts";
import { unavailable } from "../admission/admission-errors.ts";
import { ApiError } from "../http/api-error.ts";
import { contextOf, hasWaited } from "../http/request-context.ts";
import { Exchange } from "./exchange.ts";
import { headersToSendUp, queryToSendUp } from "./forwarded-headers.ts";
import { sharedLookup } from "./shared-lookup.ts";

export interface PassThroughOptions {
  /** Base URL of the service that owns the resource, or null when none is configured. */
  readonly upstream: URL | null;
  /** What the service owns, as in `pets`. */
  readonly name: string;
  /** The longest wait for a response head, and for each further piece of the body. */
  readonly timeoutMs: number;
  /** The longest wait until a client, which keeps a connection busy, has taken what waits for it. */
  readonly clientTimeoutMs: number;
  /** Looks again at the key of a request whose answer takes long. */
  readonly admission: Pick<Admission, "isKeyKnownGood" | "reverifyKeyAndBan">;
  /** Maximum connections to the service. Accounts share them out, and an account that has its share is refused. */
  readonly maxConnections?: number;
}

/**
 * Makes the handler of one operation of the service.
 *
 * @param path gives the path below the upstream's base URL, as in `/pets/7`, made of checked parameters and never of
 *   the client's text; it throws an ApiError for a parameter that is not valid
 */
export type PassThrough = (path: (parameters: Request["params"]) => string) => RequestHandler;

/** Time after which a request counts as waiting for its upstream. Until then it may be waiting for this thread. */
const slowMs = 1_000;

/** What http-proxy-middleware gets for the client's request. */
interface UpstreamCall extends IncomingMessage {
  readonly exchange: Exchange;
}

/**
 * Passes GET and HEAD on to one service, after authentication, limits and validation.
 *
 * The upstream's 2xx and 304 come back as they are, but for headers that the gateway keeps back or sets. Everything
 * else becomes an ApiError given to `next`: what `refusals` of exchange.ts makes of another status, 502
 * `upstream_unavailable` (refused or broken), 504 `upstream_timeout`, and 503 `service_unavailable` (none configured,
 * or the account has its share of the connections). When a body breaks off, the client's connection is closed, and
 * `next` is called with headers already sent.
 */
export function passThrough(options: PassThroughOptions): PassThrough {
  const { upstream, name, timeoutMs, clientTimeoutMs, admission } = options;
  const { maxConnections = 512 } = options;
  if (upstream === null) {
    return (path) => (request, _response, next) => {
      path(request.params);
      next(new ApiError("service_unavailable", { cause: new Error(`no upstream is configured for ${name}`) }));
    };
  }
  const Agent = upstream.protocol === "https:" ? HttpsAgent : HttpAgent;
  const agent = new Agent({
    keepAlive: true,
    lookup: sharedLookup(timeoutMs),
    maxSockets: maxConnections,
    maxFreeSockets: Math.ceil(maxConnections / 4),
  });
  const shares = new Shares(maxConnections);
  const proxy = createProxyMiddleware<UpstreamCall, ServerResponse>({
    target: upstream,
    agent,
    selfHandleResponse: true,
    // The library's own plugins would answer errors in their own words, and make up a log line for every response.
    ejectPlugins: true,
    plugins: [reportToExchange],
  });

  return (path) => (request, response, next) => {
    const pathBelow = path(request.params);
    if (response.destroyed) return; // the client went away while its key was looked up
    const context = contextOf(response);
    const { accountId } = context.principal!;
    if (!shares.take(accountId))
      return next(unavailable(new Error(`the account has its share of the connections to ${name}`)));
    const send = (sink: Writable) => {
      const call = upstreamCall(request, response, pathBelow, exchange);
      void proxy(call, sink as ServerResponse, (error) =>
        exchange.failed((error as Error | undefined) ?? new Error("the proxy did not take the request")),
      );
    };
    const onClose = () => shares.release(accountId);
    const reverifyKeyAndBan = () =>
      hasWaited(response) && !admission.isKeyKnownGood(context) ? admission.reverifyKeyAndBan(context) : undefined;
    const exchange = new Exchange({
      name,
      path: pathBelow,
      response,
      next,
      timeoutMs,
      clientTimeoutMs,
      send,
      reverifyKeyAndBan,
      onClose,
    });
    context.waitsForOthersFromMs = performance.now() + slowMs;
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
 * Builds a new request for the upstream from the client's. Given the client's own request, the library would send its
 * body and all its headers: with an `Expect: 100-continue` they leave before any can be removed.
 */
function upstreamCall(request: Request, response: Response, path: string, exchange: Exchange): UpstreamCall {
  const { requestId, principal, clientAddress } = contextOf(response);
  const headers: IncomingHttpHeaders = {
    ...headersToSendUp(request.headers),
    "x-request-id": requestId,
    "x-account-id": principal!.accountId,
    "x-forwarded-for": clientAddress,
  };
  const url = path + queryToSendUp(request.url);
  const noBody = new Readable({ read: () => {} });
  noBody.push(null);
  const method = request.method === "HEAD" ? "HEAD" : "GET";
  return Object.assign(noBody, { exchange, method, url, headers }) as UpstreamCall;
}
