/** Routes requests: finds the operation in the route table, has admission check the request, and calls the handler. */
import type { IncomingMessage } from "node:http";
import { type ErrorRequestHandler, type Request, type RequestHandler, type Response, Router } from "express";
import { refuseDuplicates } from "./http/bearer.ts";
import { ApiError } from "./http/errors.ts";
import { pathOf, requestId, takeBody } from "./http/request.ts";
import {
  addCommonHeaders,
  contextOf,
  type HeaderList,
  type RequestContext,
  setContext,
} from "./http/request-context.ts";
import { writeError } from "./http/respond.ts";
import type { Admission } from "./limits/admission.ts";
import type { Operation, RouteTable } from "./routes.ts";

/** Everything the router uses. A part that is missing is a type error, never a check that is skipped. */
export interface RouterParts {
  readonly routes: RouteTable;
  readonly admission: Pick<Admission, "admit" | "setAddressLimits">;
  /** Answers `/openapi.json`, `/docs` and `/account`, which need no key; calls `next` for every other path. */
  readonly docs: RequestHandler;
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

/**
 * The public API as an Express router: the table's paths and the pages beside them, below whatever path it is mounted
 * at. It needs no app around it, no setting of one, and no body parser before it: it uses nothing of requests
 * and responses but what Node gives them.
 */
export function createRouter(parts: RouterParts): Router {
  const router = Router({ strict: true, caseSensitive: true });
  router.use(enter(readTable(parts.routes), parts));
  router.use(answerError(parts));
  return router;
}

/** The headers that announce the end of a request's operation, for an answer that is made before the router. */
export function deprecationHeaders(table: RouteTable): (request: IncomingMessage) => HeaderList {
  const routes = readTable(table);
  return (request) => findOperation(findRoute(routes, request), request)?.deprecation?.headers ?? [];
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

function findRoute(routes: readonly Route[], request: IncomingMessage): Route | undefined {
  const path = pathOf(request);
  return routes.find(({ pattern }) => pattern.test(path));
}

function findOperation(route: Route | undefined, { method }: IncomingMessage): Operation | undefined {
  return route?.operations.get(method === "HEAD" ? "GET" : method!);
}

/**
 * What every request goes through: its context, then, for all but the documentation, admission (key, ban, limits,
 * scope), the end of a retired operation, and the handler. It is one layer of the router, because each layer costs as
 * much as what it does.
 */
function enter(routes: readonly Route[], parts: RouterParts): RequestHandler {
  const { admission, docs, clientAddress } = parts;
  return (request, response, next) => {
    const route = findRoute(routes, request);
    const operation = findOperation(route, request);
    const context = openContext(request, response, operation, parts);
    takeBody(request);
    context.clientAddress = clientAddress(request); // it may throw, and the answer to that needs a context
    const fail = (error: unknown) => next(error instanceof Error ? error : new Error("refused without an error"));
    const answer = async () => {
      await admission.admit(request, context, operation);
      const { handler } = admitted(route, operation, request, context, parts);
      await handler(request, response, next);
    };
    if (pathOf(request).startsWith("/v1/")) return void answer().catch(fail);
    context.route = "docs";
    admission.setAddressLimits(context);
    refuseDuplicates(request.rawHeaders); // admission does it for all other paths
    docs(request, response, (error?: unknown) => {
      if (error) return next(error);
      context.route = "unknown";
      answer().catch(fail);
    });
  };
}

/**
 * The operation that answers a request which has been admitted. It sets the parameters of its path.
 *
 * @throws ApiError not_found, method_not_allowed, invalid_request
 */
function admitted(
  route: Route | undefined,
  operation: Operation | undefined,
  request: Request,
  context: RequestContext,
  { now }: RouterParts,
): Operation {
  if (!route) {
    throw new ApiError("not_found", {
      message: "There is no such path; operations are below /v1, described at /docs.",
    });
  }
  context.route = (operation ?? route.operations.values().next().value!).name;
  if (!operation) throw wrongMethod(route);
  const { deprecation } = operation;
  if (deprecation && now() >= deprecation.goneFromMs) {
    throw new ApiError("not_found", { status: 410, message: "The operation has been retired; see the Link header." });
  }
  request.params = parametersOf(route, request);
  return operation;
}

/** @throws ApiError invalid_request for a parameter that is no percent-encoded UTF-8 */
function parametersOf({ pattern }: Route, request: Request): Record<string, string> {
  const groups = pattern.exec(pathOf(request))?.groups;
  const parameters: Record<string, string> = {};
  for (const name in groups) {
    try {
      parameters[name] = decodeURIComponent(groups[name]!);
    } catch (cause) {
      throw new ApiError("invalid_request", { message: `${name} must be percent-encoded UTF-8.`, cause });
    }
  }
  return parameters;
}

function wrongMethod({ operations }: Route): ApiError {
  const allow = [...operations.keys()].flatMap((method) => (method === "GET" ? ["GET", "HEAD"] : method)).join(", ");
  return new ApiError("method_not_allowed", { headers: { Allow: allow } });
}

/** Opens the context that every later step needs, the answer to an error included, and ends it with the response. */
function openContext(
  request: Request,
  response: Response,
  operation: Operation | undefined,
  { onDeprecatedUse, onDone }: RouterParts,
): RequestContext {
  const context: RequestContext = {
    requestId: requestId(request.headers["x-request-id"]),
    clientAddress: "unknown",
    startedMs: performance.now(),
    route: "unknown",
    limits: [],
    windows: [],
    deprecation: operation?.deprecation?.headers ?? [],
    token: "",
    principal: undefined,
    isHeld: false,
    isHurried: false,
    onHurry: undefined,
    meanwhile: undefined,
  };
  setContext(response, context);
  addCommonHeaders(response);
  response.on("close", () => {
    if (operation?.deprecation && context.principal) onDeprecatedUse(context.principal.accountId, operation.name);
    onDone(request, response);
  });
  return context;
}

function answerError({ admission, onError }: RouterParts): ErrorRequestHandler {
  return (thrown, request, response, _next) => {
    const context = contextOf(response);
    // Something went wrong before the caller was known.
    if (context.limits.length === 0) admission.setAddressLimits(context);
    onError(writeError(request, response, thrown), context);
  };
}
