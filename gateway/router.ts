/** Routes requests: finds the operation in the route table, has admission check the request, and calls the handler. */
import type { IncomingMessage } from "node:http";
import { type ErrorRequestHandler, type Request, type RequestHandler, type Response, Router } from "express";
import type { Admission } from "./admission/admission.ts";
import { ApiError } from "./http/api-error.ts";
import { refuseUnknownParameters } from "./http/query.ts";
import { acceptRequestId, pathOf } from "./http/request.ts";
import { takeBody } from "./http/request-body.ts";
import {
  addCommonHeaders,
  contextOf,
  type HeaderList,
  type RequestContext,
  setContext,
} from "./http/request-context.ts";
import { writeError } from "./http/respond.ts";
import type { Operation, RouteTable } from "./routes.ts";

/** Everything the router uses. A part that is missing is a type error, never a check that is skipped. */
export interface RouterOptions {
  readonly routes: RouteTable;
  readonly admission: Pick<Admission, "admit" | "setAddressHeaders">;
  /** Answers the documents and pages, which need no key; calls `next` for every other request. */
  readonly pages: RequestHandler;
  readonly clientAddress: (request: Request) => string;
  /** Counts a request of an account to a deprecated operation, whatever its answer. */
  readonly onDeprecatedUse: (accountId: string, operation: string) => void;
  /** Gets every request at its end, whatever became of it. */
  readonly onDone: (request: Request, response: Response) => void;
  readonly onError: (error: ApiError, context: RequestContext) => void;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** One path of the table, with its operations by method. */
interface Route {
  /** Has a named group for each parameter. */
  readonly pattern: RegExp;
  readonly operations: ReadonlyMap<string, Operation>;
}

/** What the table has for the path of a request, and for its method. */
interface Found extends Pick<Route, "operations"> {
  readonly operation: Operation | undefined;
  /** As they are in the path. */
  readonly parameters: Readonly<Record<string, string>> | undefined;
}

/**
 * The public API as an Express router: the table's paths and the pages beside them, below whatever path it is mounted
 * at. It needs no app around it, no setting of one, and no body parser before it: it uses nothing of requests
 * and responses but what Node gives them.
 */
export function createRouter(options: RouterOptions): Router {
  const router = Router({ strict: true, caseSensitive: true });
  router.use(requestHandler(readTable(options.routes), options));
  router.use(answerError(options));
  return router;
}

/** The headers that announce the end of a request's operation, for an answer that is made before the router. */
export function deprecationHeaderFinder(table: RouteTable): (request: IncomingMessage) => HeaderList {
  const routes = readTable(table);
  return (request) => findOperation(routes, pathOf(request), request)?.operation?.deprecation?.headers ?? [];
}

/** Groups the table by path: `GET /v1/pets/:petId` is the operation GET of the route `/v1/pets/:petId`. */
function readTable(table: RouteTable): Route[] {
  const entries = Object.entries(table).map(([key, operation]) => {
    const [method = "", path = ""] = key.split(" ");
    return { method, path, operation };
  });
  return [...Map.groupBy(entries, ({ path }) => path)].map(([path, ofPath]) => ({
    pattern: new RegExp(`^${path.replace(/:(\w+)/g, "(?<$1>[^/]+)")}$`),
    operations: new Map(ofPath.map(({ method, operation }) => [method, operation])),
  }));
}

function findOperation(routes: readonly Route[], path: string, { method }: IncomingMessage): Found | undefined {
  for (const { pattern, operations } of routes) {
    const match = pattern.exec(path);
    if (match === null) continue;
    return { operations, operation: operations.get(method === "HEAD" ? "GET" : method!), parameters: match.groups };
  }
  return undefined;
}

/**
 * What every request goes through: its context, then, for all but the documentation, admission (key, ban, limits,
 * scope), a 410 if the operation is retired, and the handler. It is one layer of the router, because a layer costs as
 * much as the work in it.
 */
function requestHandler(routes: readonly Route[], options: RouterOptions): RequestHandler {
  const { admission, pages, clientAddress } = options;
  return (request, response, next) => {
    const path = pathOf(request);
    const found = findOperation(routes, path, request);
    const operation = found?.operation;
    const context = openContext(request, response, operation, options);
    takeBody(request);
    context.clientAddress = clientAddress(request); // it may throw, and the answer to that needs a context
    const fail = (error: unknown) => next(error instanceof Error ? error : new Error("refused without an error"));
    const answer = async () => {
      await admission.admit(request, context, operation);
      const { handler } = operationOrThrow(found, request, context, options);
      await handler(request, response, next);
    };
    if (path.startsWith("/v1/")) return void answer().catch(fail);
    context.operationName = "docs";
    admission.setAddressHeaders(context);
    pages(request, response, (error?: unknown) => {
      if (error) return next(error);
      context.operationName = "unknown";
      answer().catch(fail);
    });
  };
}

/**
 * Enters the operation of a request that has been admitted: gives the context its name, and the request the parameters
 * of its path.
 *
 * @throws ApiError not_found, method_not_allowed, invalid_request
 */
function operationOrThrow(
  found: Found | undefined,
  request: Request,
  context: RequestContext,
  { now }: RouterOptions,
): Operation {
  if (!found) {
    throw new ApiError("not_found", {
      message: `There is no such path: ${ruleFor(pathOf(request))}. The Link header leads to the documentation.`,
    });
  }
  const { operations, operation, parameters } = found;
  context.operationName = (operation ?? operations.values().next().value!).name;
  if (!operation) throw wrongMethod(operations);
  const { deprecation, query } = operation;
  if (deprecation && now() >= deprecation.goneFromMs) {
    throw new ApiError("not_found", { status: 410, message: "The operation has been retired; see the Link header." });
  }
  if (query) refuseUnknownParameters(request, query);
  request.params = {};
  for (const name in parameters) request.params[name] = decoded(name, parameters[name]!);
  return operation;
}

/** What an unknown path may have wrong, in words for its caller. */
function ruleFor(path: string): string {
  if (path !== "/" && path.endsWith("/")) return "operations have no slash at their end";
  return path.startsWith("/v1/") ? "no operation has it" : "operations are below /v1";
}

/** @throws ApiError invalid_request for a parameter that is no percent-encoded UTF-8 */
function decoded(name: string, text: string): string {
  try {
    return decodeURIComponent(text);
  } catch (cause) {
    throw new ApiError("invalid_request", { message: `${name} must be percent-encoded UTF-8.`, cause });
  }
}

function wrongMethod(operations: Route["operations"]): ApiError {
  const allow = [...operations.keys()].flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : method)).join(", ");
  return new ApiError("method_not_allowed", { headers: { Allow: allow } });
}

/** Opens the context that every later step needs, the answer to an error included, and ends it with the response. */
function openContext(
  request: Request,
  response: Response,
  operation: Operation | undefined,
  { onDeprecatedUse, onDone }: RouterOptions,
): RequestContext {
  const context: RequestContext = {
    requestId: acceptRequestId(request.headers["x-request-id"]),
    clientAddress: "unknown",
    arrivedMs: performance.now(),
    operationName: "unknown",
    errorCode: undefined,
    limitHeaders: [],
    shownWindows: [],
    deprecationHeaders: operation?.deprecation?.headers ?? [],
    token: "",
    principal: undefined,
    waitsForOthersFromMs: Number.POSITIVE_INFINITY,
    isHurried: false,
    onHurry: undefined,
    prefetched: undefined,
  };
  setContext(response, context);
  addCommonHeaders(response);
  response.on("close", () => {
    if (operation?.deprecation && context.principal) onDeprecatedUse(context.principal.accountId, operation.name);
    onDone(request, response);
  });
  return context;
}

function answerError({ admission, onError }: RouterOptions): ErrorRequestHandler {
  return (thrown, request, response, _next) => {
    const context = contextOf(response);
    // Something went wrong before the caller was known.
    if (context.limitHeaders.length === 0) admission.setAddressHeaders(context);
    const error = writeError(request, response, thrown);
    context.errorCode = error.code;
    onError(error, context);
  };
}
